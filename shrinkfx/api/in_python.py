"""What a caller of the library is told: keywords, where others type options."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

from shrinkfx.errors import ShrinkfxError
from shrinkfx.flags import options_in
from shrinkfx.options.options import Options
from shrinkfx.wording import Flag

P = ParamSpec("P")
R = TypeVar("R")


def public(function: Callable[P, R]) -> Callable[P, R]:
    """Have what a function of the library raises say it in the library's words."""

    @functools.wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        with in_python():
            return function(*args, **kwargs)

    return called


@contextmanager
def in_python() -> Iterator[None]:
    """Have an error name options as a caller of the library would write them."""
    try:
        yield
    except ShrinkfxError as error:
        error.args = (error.words.worded(as_keyword),)
        raise


def as_keyword(named: Flag) -> str:
    """Write an option as a keyword: ``--until ima`` becomes ``until='ima'``.

    What has none is for the command line, and is said to be.
    """
    keyword, function = _KEYWORDS.get(named.flag), _CALLS.get(named.flag)
    if function and named.value:
        return f"{function}({_value(named)})"
    if function and keyword is None:
        return function
    if keyword is None:
        return f"on the command line {named}"
    if named.value == "" and not named.stands:
        return keyword
    return f"{keyword}={_value(named)}"


def _value(named: Flag) -> str:
    if named.stands:  # for a value, which is no text of its own: FILE, KEY=VALUE
        key, is_pair, value = named.stands.partition("=")
        return f"{{{key}: {value}}}" if is_pair else key
    if isinstance(named.value, tuple):
        return repr(dict([named.value]))
    return repr(named.value)


_CALLS = {
    "--dynamic-sweep": "shrinkfx.api.sweep",
    "--resume": "shrinkfx.api.resume",
    "--explain": "shrinkfx.api.explain",
    "--report": "shrinkfx.api.report",
    "--list": "shrinkfx.api.runs",
    "--verify": "shrinkfx.api.verify",
    "--capture": "shrinkfx.api.capture",
}
"""Tasks, and the functions that do them: ``--resume DIR``, ``resume('DIR')``."""

_KEYWORDS = {
    "--across": "across",
    "--candidate": "digest",
    "--program": "program",
    **{option.flag: option.name for option in options_in(Options)},
}
