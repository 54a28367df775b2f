"""Errors for wrong arguments of the Python API."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from typing import ParamSpec, TypeVar

from shrinkfx.errors import UsageError
from shrinkfx.flags import list_record_options
from shrinkfx.options.options import Options

P = ParamSpec("P")
R = TypeVar("R")


def api_function(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function of the API so that wrong arguments are usage errors.

    The decorated function raises ``UsageError`` instead of ``TypeError`` if its
    arguments are wrong; for an unknown keyword, the error suggests similar ones.
    """
    takes = inspect.signature(function)

    @functools.wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
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
    flag = f"--{name.replace('_', '-')}"
    keywords = {option.flag: option.name for option in list_record_options(Options)}
    keyword = {**keywords, "--candidate": "digest", "--yes": "agree"}.get(flag)
    matches = [keyword] if keyword in names else get_close_matches(name, names, n=3)
    if matches:
        return f"; did you mean {', '.join(matches)}?"
    return f"; it accepts {', '.join(names)}"
