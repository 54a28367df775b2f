"""What a run is asked for, as a command that asks for it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from shrinkfx.flags import Option, options_in
from shrinkfx.options.options import Options


def typed(options: Options) -> str:
    """Write the command that asks for this; of a sweep, for its program as it is."""
    usual, words = Options(Path()), ["shrinkfx", str(options.model)]
    for option in options_in(Options):
        value = getattr(options, option.name)
        if value != getattr(usual, option.name):
            words += _words(option, value)
    return shlex.join(words)


def _words(option: Option, value: Any) -> Iterator[str]:  # noqa: ANN401 - any field's
    """Yield the flag and what is read as the value."""
    if option.takes is bool:
        yield option.flag
        return
    if isinstance(value, Mapping):
        texts = [_pair(option, *pair) for pair in value.items()]
    elif isinstance(value, tuple):
        texts = [*value] if option.repeated else [",".join(value)]
    else:
        texts = [str(value)]
    for text in texts:
        yield from (option.flag, text)


def _pair(option: Option, name: str, value: object) -> str:
    """Write ``KEY=VALUE``: a text that looks like a number in quotes, where read so."""
    text = f"{name}={value}"
    return text if option.value_of([text]) == {name: value} else f"{name}={value!r}"
