"""Evaluation of statements: names in scope, arguments by schema, and eager runs."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cache
from types import CodeType, SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from shrinkfx.program.listing.printed_program import Leaf, LeafKind, Statement
from shrinkfx.worker.eager.intermediates import span
from shrinkfx.worker.private_api import graph_api

# Kernels check more than fake tensors do: a fake ``mm`` takes a float and a bfloat16
# matrix, a fake ``index_put`` any values.

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


FROM_THE_END = ("index", "_unsafe_index", "index_put", "_unsafe_index_put")
"""Operators that take a list of indices, which may be negative."""

ALONG = (
    *("index_select", "gather", "scatter", "scatter_add", "scatter_reduce"),
    *("index_add", "index_copy", "index_fill"),
)
"""Operators with an ``index`` along one dim."""
TABLES = ("embedding", "embedding_bag", "_embedding_bag")
"""Operators whose ``indices`` are rows of a table."""
LOSSES = ("nll_loss_forward", "nll_loss2d_forward", "nll_loss", "nll_loss_nd")
"""Operators whose ``target`` is a class."""

_INDEX_ARGUMENTS = {
    **dict.fromkeys((*FROM_THE_END, *TABLES), "indices"),
    **dict.fromkeys(ALONG, "index"),
    **dict.fromkeys(LOSSES, "target"),
}
"""The argument that holds indices, by operator."""


@cache
def find_index_names(statement: Statement) -> frozenset[str]:
    """Return the names of the values that a statement uses as indices."""
    argument = _INDEX_ARGUMENTS.get(get_operator_name(statement).removesuffix("_"))
    leaves = list_argument_leaves(statement, argument) if argument else []
    return frozenset(leaf.text for leaf in leaves if leaf.kind is LeafKind.VALUE)


@cache
def arguments_of(statement: Statement) -> Mapping[int, tuple[str, str]]:
    """Map the number of each leaf to the argument that it is, or is a part of.

    Returns:
        Name and schema type of the argument; empty if the callee has no schema.
    """
    operator = resolve_callee(statement.callee)
    if operator is None:
        return {}
    types = {each.name: str(each.type) for each in operator._schema.arguments}
    ordered = list(types)
    parents = {leaf.number: leaf for leaf in statement.leaves}
    positions = [
        x.number for x in statement.leaves if x.parent is None and not x.keyword
    ]
    found = {}
    for leaf in statement.leaves:
        top = _top(leaf, parents)
        name = top.keyword
        if name is None and (position := positions.index(top.number)) < len(ordered):
            name = ordered[position]
        if name is not None and name in types:
            found[leaf.number] = name, types[name]
    return found


def list_argument_leaves(statement: Statement, name: str) -> list[Leaf]:
    """List the leaves of an argument, including nested leaves, in order."""
    arguments = arguments_of(statement)
    return [x for x in statement.leaves if arguments.get(x.number, ("", ""))[0] == name]


def get_operator_name(statement: Statement) -> str:
    """Return the name of an aten operator without its overload, else ''."""
    parts = statement.callee.split(".")
    return parts[3] if parts[:3] == ["torch", "ops", "aten"] else ""


def _top(leaf: Leaf, parents: Mapping[int, Leaf]) -> Leaf:
    while leaf.parent is not None:
        leaf = parents[leaf.parent]
    return leaf


@cache
def resolve_callee(callee: str) -> graph_api.OpOverload | None:
    """Return the operator that a statement calls, or None if it calls none."""
    if not callee.startswith("torch.ops."):
        return None
    found: object = torch
    for part in callee.split(".")[1:]:
        found = getattr(found, part, None)
    return found if isinstance(found, graph_api.OpOverload) else None


def is_index(leaf: Leaf, statement: Statement) -> bool:
    """Return whether a number is an index: ``split[1]``, ``x.shape[0]``."""
    parents = [other for other in statement.leaves if other.number == leaf.parent]
    return any(a.kind is LeafKind.SIZE and a.text.endswith("]") for a in parents)
