"""Write options as a shell command."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from shrinkfx.flags import Option, list_record_options
from shrinkfx.options.options import Options


def format_command(options: Options) -> str:
    """Return the command that starts a run with these options.

    For a sweep, the command reduces the program without the sweep.
    """
    defaults, words = Options(Path()), ["shrinkfx", str(options.model)]
    for option in list_record_options(Options):
        value = getattr(options, option.name)
        if value != getattr(defaults, option.name):
            words += _format_option(option, value)
    return shlex.join(words)


def _format_option(option: Option, value: Any) -> Iterator[str]:  # noqa: ANN401 - any field's
    """Yield the flag, and the text that the parser reads as this value."""
    if option.takes is bool:
        yield option.flag
        return
    if isinstance(value, Mapping):
        texts = [_format_pair(option, *pair) for pair in value.items()]
    elif isinstance(value, tuple):
        texts = [*value] if option.repeated else [",".join(value)]
    else:
        texts = [str(value)]
    for text in texts:
        yield from (option.flag, text)


def _format_pair(option: Option, name: str, value: object) -> str:
    """Return ``KEY=VALUE``.

    The value is quoted if the option would read it differently without quotes, for
    example a string that looks like a number.
    """
    text = f"{name}={value}"
    return (
        text if option.convert_value([text]) == {name: value} else f"{name}={value!r}"
    )
