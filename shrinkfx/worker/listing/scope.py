"""Evaluation of statements: the names in scope, and the tensors in a result."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator, Mapping
from functools import cache
from types import CodeType, SimpleNamespace
from typing import Any

import torch

from shrinkfx.program.listing.statements import Statement

Names = Mapping[str, object]
"""The values that statements read, by spelling."""


class Misfit(Exception):
    """A statement refuses its operands, or yields a value that is not allowed.

    Attributes:
        frames: block and statement, the innermost last.
    """

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.frames: list[tuple[str, str]] = []


def scope_of(names: Names) -> dict[str, Any]:
    """Build the scope of an expression, with attributes below ``self``."""
    attrs = {name[5:]: what for name, what in names.items() if name.startswith("self.")}
    free = {name: what for name, what in names.items() if not name.startswith("self.")}
    modules = {"torch": torch, "operator": operator, "math": math}
    return {**modules, **free, "self": SimpleNamespace(**attrs)}


def evaluate_expression(code: str, names: Names) -> Any:
    """Evaluate an expression.

    Raises:
        Misfit: the expression raises any exception.
    """
    try:
        with torch.no_grad():
            return eval(compile_expression(code), scope_of(names))
    except Misfit:
        raise
    except Exception as error:
        raise Misfit(f"{type(error).__name__}: {error}") from error


@cache
def compile_expression(code: str) -> CodeType:
    """Compile an expression, once."""
    return compile(code, "<listing>", "eval")


@cache
def list_reads(statement: Statement) -> tuple[str, ...]:
    """Return the sorted names that a statement reads."""
    return tuple(sorted(statement.reads))


def tensors(what: object) -> Iterator[torch.Tensor]:
    """Yield the tensors in a value, in order."""
    if isinstance(what, torch.Tensor):
        yield what
    elif isinstance(what, (tuple, list)):
        for item in what:
            yield from tensors(item)
