"""Advice that names options of the command, in the words of ``minify``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from shrinkfx.errors import NotReproducible


@contextmanager
def in_python() -> Iterator[None]:
    """Have an error that says what to try next say it as a caller would write it."""
    try:
        yield
    except NotReproducible as error:
        error.args = tuple(
            with_keywords(each) if isinstance(each, str) else each
            for each in error.args
        )
        raise


_OPTION = re.compile(r"(?<![\w-])--([a-z][a-z-]*)(?: (\w+=\w+|[\w-]*\w))?")

_PAIRS = {"inductor-config": "inductor", "env": "environment"}
"""Options that are given pairs, and their keywords."""

_OF_THE_COMMAND = ("dynamic-sweep",)
"""Options that have no keyword."""


def with_keywords(text: str) -> str:
    """Write options as keywords: ``--until ima`` becomes ``until='ima'``."""
    return _OPTION.sub(_keyword, text)


def _keyword(found: re.Match[str]) -> str:
    option, value = found[1], found[2] or "..."
    if option in _OF_THE_COMMAND:
        return f"on the command line {found[0]}"
    if option in _PAIRS:
        key, _, set_to = value.partition("=")
        return f"{_PAIRS[option]}={{{key!r}: {set_to!r}}}"
    # What stands for a value is written as it is, as in FILE.
    given = value if re.fullmatch(r"[A-Z]+|\d+|\.\.\.", value) else repr(value)
    return f"{option.replace('-', '_')}={given}"
