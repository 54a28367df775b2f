"""Eager runs of single statements, on stand-in operands.

Kernels check more than fake tensors do: a fake ``mm`` takes a float and a bfloat16
matrix, a fake ``index_put`` any values.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection
from functools import cache

import torch
from torch import Tensor

from shrinkfx.program.listing.statements import LeafKind, Statement
from shrinkfx.worker.eager.intermediates import span
from shrinkfx.worker.listing.arguments import resolve_callee
from shrinkfx.worker.listing.scope import (
    Misfit,
    Names,
    compile_expression,
    scope_of,
    tensors,
)

MOST_ELEMENTS = 4096
"""Maximal number of elements of all operands."""

_MOST_MADE = 1 << 22
"""Maximal number of result elements.

The estimate is the number of operand elements times all numbers in the statement.
"""

_MOST_KNOWN = 1 << 15
"""Maximal number of elements of operands and results, if results are known."""

_NEEDS_VALUES = re.compile(r"linalg|cholesky|inverse|triangular|assert|constrain|ctc")
"""Operators that refuse arbitrary elements, for example singular matrices."""

_DATA_DEPENDENT = {"dynamic_output_shape", "data_dependent_output"}
"""Tags of operators whose result sizes depend on elements.

They run on ones, so that a mask selects everything.
"""

Fill = Callable[..., Tensor]


@cache
def is_pure_aten(statement: Statement) -> bool:
    """Return whether a statement calls an aten operator that only yields a value.

    False for CUDA code, and for operators that refuse arbitrary elements.
    """
    operator = resolve_callee(statement.callee)
    if operator is None or not statement.callee.startswith("torch.ops.aten."):
        return False
    if operator._schema.is_mutable or _NEEDS_VALUES.search(statement.callee):
        return False
    return "cuda" not in statement.code


@cache
def mutates_operand(statement: Statement) -> bool:
    """Return whether a statement mutates an operand."""
    operator = resolve_callee(statement.callee)
    written = operator is not None and operator._schema.is_mutable
    return written or statement.callee.endswith(".copy_")


@cache
def _is_unforeseen(statement: Statement) -> bool:
    operator = resolve_callee(statement.callee)
    return operator is not None and any(
        t.name in _DATA_DEPENDENT for t in operator.tags
    )


def is_small(statement: Statement, read: Names, made: object = None) -> bool:
    """Return whether running a statement takes negligible time and memory.

    Args:
        made: the result, if it is known.
    """
    operands = list(tensors(list(read.values())))
    known = list(tensors(made))
    if any(t.device.type != "cpu" or t.layout is not torch.strided for t in operands):
        return False
    count = sum(map(span, operands))
    if known:
        return count + sum(map(span, known)) <= _MOST_KNOWN
    return count <= MOST_ELEMENTS and max(count, 1) * _numbers(statement) <= _MOST_MADE


@cache
def _numbers(statement: Statement) -> int:
    """Multiply all whole numbers in a statement; from 2**31 on they are no sizes."""
    texts = [x.text for x in statement.leaves if x.kind is LeafKind.NUMBER]
    numbers = [abs(int(text)) for text in texts if text.lstrip("-").isdigit()]
    return math.prod(max(1, number) for number in numbers if number < 1 << 31)


def yields_known_integers(statement: Statement, made: object) -> bool:
    """Return whether a statement yields whole numbers, deterministically."""
    operator = resolve_callee(statement.callee)
    if operator is None or "empty" in statement.callee:
        return False
    if any(tag.name == "nondeterministic_seeded" for tag in operator.tags):
        return False
    return has_only_integers(made)


def has_only_integers(made: object) -> bool:
    """Return whether a value consists of integers and bools only."""
    if isinstance(made, (tuple, list)):
        return all(has_only_integers(each) for each in made)
    if isinstance(made, Tensor):
        return not (made.is_floating_point() or made.is_complex())
    return isinstance(made, int)


def is_integer_tensor(made: object) -> bool:
    """Return whether a value is a tensor of integers, and not of bools."""
    is_tensor = isinstance(made, Tensor) and made.dtype is not torch.bool
    return is_tensor and has_only_integers(made)


def run_statement_eager(
    statement: Statement, read: Names, exact: Collection[str] = frozenset()
) -> object:
    """Run a statement in eager.

    Args:
        exact: operands that keep their values; of other operands only the metadata
            counts.

    Raises:
        Misfit: eager refuses the statement, even with ones for elements. Ones avoid the
            division of whole numbers by zero.
    """
    error = Misfit("")
    fills = (torch.ones,) if _is_unforeseen(statement) else (torch.zeros, torch.ones)
    for fill in fills:
        replace_all = fill is torch.ones
        real = {
            name: what if name in exact else _real(what, fill, replace_all)
            for name, what in read.items()
        }
        try:
            with torch.no_grad():
                return eval(compile_expression(statement.code), scope_of(real))
        except Exception as refused:  # noqa: BLE001 - whatever an operator raises
            misfit = Misfit(f"{type(refused).__name__}: {refused}")
            error = misfit if fill is fills[0] else error
    raise error


def _real(what: object, fill: Fill, replace_all: bool) -> object:
    """Replace fake tensors by real ones; ``replace_all``: replace real ones, too."""
    if isinstance(what, (tuple, list)):
        return type(what)([_real(item, fill, replace_all) for item in what])
    if not isinstance(what, Tensor) or (type(what) is Tensor and not replace_all):
        return what
    memory = fill((span(what),), dtype=what.dtype)
    return memory.as_strided(tuple(what.shape), what.stride())
