"""A decorator for methods that take the fields of a record by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

Fields = ParamSpec("Fields")
Result = TypeVar("Result")


def with_fields_of(
    record: Callable[Fields, object],
) -> Callable[[Callable[..., Result]], Callable[Concatenate[Any, Fields], Result]]:
    """Give a method the parameters of a record, so that mypy finds a misspelt one."""
    return lambda method: method
