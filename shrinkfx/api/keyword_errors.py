"""Errors of the Python API, which name keywords instead of command-line options."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from typing import ParamSpec, TypeVar

from shrinkfx.errors import ShrinkfxError, UsageError
from shrinkfx.flags import list_record_options
from shrinkfx.options.options import Options
from shrinkfx.wording import Flag

P = ParamSpec("P")
R = TypeVar("R")


def api_function(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function of the API so that its errors name keywords.

    The decorated function raises ``UsageError`` instead of ``TypeError`` if its
    arguments are wrong; for an unknown keyword, the error suggests similar ones.
    """
    takes = inspect.signature(function)

    @functools.wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        with reword_errors():
            unknown = [name for name in kwargs if name not in takes.parameters]
            if unknown:
                hint = _suggest_keywords(unknown[0], takes.parameters)
                problem = f"{function.__name__}() has no argument {unknown[0]}"
                raise UsageError(f"{problem}{hint}")
            try:
                takes.bind(*args, **kwargs)
            except TypeError as error:
                raise UsageError(f"{function.__name__}(): {error}") from error
            return function(*args, **kwargs)

    return called


def _suggest_keywords(name: str, known: Iterable[str]) -> str:
    """Suggest keywords for an unknown one.

    The unknown name may be that of a command-line option whose keyword differs, or a
    misspelling.
    """
    names = [*known]
    keyword = _KEYWORDS.get(f"--{name.replace('_', '-')}")
    matches = [keyword] if keyword in names else get_close_matches(name, names, n=3)
    if matches:
        return f"; did you mean {', '.join(matches)}?"
    return f"; it accepts {', '.join(names)}"


@contextmanager
def reword_errors() -> Iterator[None]:
    """Reword errors that the block raises: they name keywords instead of options."""
    try:
        yield
    except ShrinkfxError as error:
        error.args = (error.words.format_flags(format_keyword),)
        raise


def format_keyword(flag: Flag) -> str:
    """Write an option as a keyword: ``--until ima`` becomes ``until='ima'``.

    An option that selects a task becomes the function that does the task. An option
    with neither keyword nor function is described as one of the command line.
    """
    keyword, function = _KEYWORDS.get(flag.flag), _TASK_FUNCTIONS.get(flag.flag)
    if function and flag.value:
        return f"{function}({_format_value(flag)})"
    if function and keyword is None:
        return function
    if keyword is None:
        return f"on the command line {flag}"
    if flag.value == "" and not flag.stands:
        return keyword
    return f"{keyword}={_format_value(flag)}"


def _format_value(flag: Flag) -> str:
    if flag.stands:  # a placeholder for a value: FILE, KEY=VALUE
        key, is_pair, value = flag.stands.partition("=")
        return f"{{{key}: {value}}}" if is_pair else key
    if isinstance(flag.value, tuple):
        return repr(dict([flag.value]))
    return repr(flag.value)


_TASK_FUNCTIONS = {
    "--dynamic-sweep": "shrinkfx.api.sweep",
    "--resume": "shrinkfx.api.resume",
    "--explain": "shrinkfx.api.explain",
    "--report": "shrinkfx.api.report",
    "--list": "shrinkfx.api.runs",
    "--verify": "shrinkfx.api.verify",
    "--capture": "shrinkfx.api.capture",
}
"""Functions that do the tasks of options: ``--resume DIR`` is ``resume('DIR')``."""

_KEYWORDS = {
    "--across": "across",
    "--candidate": "digest",
    "--program": "program",
    "--torch": "torch",
    "--yes": "agree",
    **{option.flag: option.name for option in list_record_options(Options)},
}
