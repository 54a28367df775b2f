"""What a caller of the library is told: keywords, where others type options."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from typing import ParamSpec, TypeVar

from shrinkfx.errors import ShrinkfxError, UsageError
from shrinkfx.flags import options_in
from shrinkfx.options.options import Options
from shrinkfx.wording import Flag

P = ParamSpec("P")
R = TypeVar("R")


def public(function: Callable[P, R]) -> Callable[P, R]:
    """Refuse arguments that a function of the library does not take, in its own words.

    Raises:
        UsageError: by the one that is called, with the name that may be meant.
    """
    takes = inspect.signature(function)

    @functools.wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        with in_python():
            unknown = [name for name in kwargs if name not in takes.parameters]
            if unknown:
                near = _meant(unknown[0], takes.parameters)
                name = f"{function.__name__}() has no argument {unknown[0]}"
                raise UsageError(f"{name}{near}")
            try:
                takes.bind(*args, **kwargs)
            except TypeError as error:
                raise UsageError(f"{function.__name__}(): {error}") from error
            return function(*args, **kwargs)

    return called


def _meant(name: str, known: Iterable[str]) -> str:
    """Say which keyword was meant: one that is typed otherwise, or spelt alike."""
    names = [*known]
    typed = _KEYWORDS.get(f"--{name.replace('_', '-')}")
    near = [typed] if typed in names else get_close_matches(name, names, n=3)
    if near:
        return f"; did you mean {', '.join(near)}?"
    return f"; it accepts {', '.join(names)}"


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
    "--torch": "torch",
    "--yes": "agree",
    **{option.flag: option.name for option in options_in(Options)},
}
