"""Check of the sizes of inputs against the declarations of a program."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import sympy
import torch
from torch import fx
from torch.export import ExportedProgram

from shrinkfx.errors import LoadError
from shrinkfx.program.sizes import holds, names_in
from shrinkfx.wording import Flag, MessageText
from shrinkfx.worker.model import Inputs, user_placeholders
from shrinkfx.worker.sizes.read_space import find_space


def require_declared_sizes(
    source: str, program: ExportedProgram, example: Inputs, inputs: Inputs
) -> None:
    """Refuse sizes and numbers that the program was not exported for.

    Args:
        example: the inputs that it was exported with, of the same structure.

    Raises:
        LoadError: a size is not allowed; the message has its place, its number, and the
            declaration.
    """
    pairs = zip(user_placeholders(program, example), inputs.flat(), strict=True)
    sizes = [entry for node, leaf in pairs for entry in _sizes(node, leaf)]
    bound: dict[Any, sympy.Integer] = {}
    for _, declared, size in sizes:
        if isinstance(declared, sympy.Symbol) and type(size) is int:
            bound.setdefault(declared, sympy.Integer(size))
    for where, declared, size in sizes:
        problem = _outside(program, declared, size) or _unequal(declared, size, bound)
        if problem:
            raise LoadError(
                source, f"{where} is {size!r}", MessageText(problem, _TO_TEST)
            )
    named = {str(symbol): int(size) for symbol, size in bound.items()}
    conditions = find_space(program, example).conditions if named else ()
    for condition in conditions:
        if names_in(condition) <= set(named) and not holds(condition, named):
            where = ", ".join(f"{name}={size}" for name, size in named.items())
            problem = f"the program declares {condition}"
            raise LoadError(
                source, f"its sizes are {where}", MessageText(problem, _TO_TEST)
            )


_TO_TEST = MessageText(
    "; to reduce what the compiled program makes of such inputs: ",
    Flag("--until", "check-inputs"),
    ", or ",
    Flag("--env", ("AOTI_RUNTIME_CHECK_INPUTS", "1")),
)


def _sizes(node: fx.Node, leaf: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield the place, the declared and the actual number of each size or number."""
    value = node.meta.get("val")
    if isinstance(value, torch.Tensor) and isinstance(leaf, torch.Tensor):
        for dim, (size, real) in enumerate(zip(value.shape, leaf.shape, strict=True)):
            declared = size.node.expr if isinstance(size, torch.SymInt) else size
            yield f"dim {dim} of {node.name}", declared, int(real)
    elif isinstance(value, torch.SymInt):
        yield node.name, value.node.expr, leaf
    elif isinstance(value, (bool, int, float, str)):
        yield node.name, value, leaf


def _outside(program: ExportedProgram, declared: Any, size: Any) -> str:
    bounds = program.range_constraints.get(declared)
    if bounds is None:
        return ""
    # As in torch.export.export, a lower bound up to 2 means that none was set.
    low = bounds.lower if bounds.lower > 2 else 0
    if type(size) is int and low <= size <= bounds.upper:
        return ""
    return f"the program declares {declared}, from {bounds.lower} to {bounds.upper}"


def _unequal(declared: Any, size: Any, bound: Mapping[Any, sympy.Integer]) -> str:
    if not isinstance(declared, sympy.Expr):
        same = type(declared) is type(size) and declared == size
        return "" if same else f"the program was exported for {declared!r} only"
    expected = declared.xreplace(bound)
    if not expected.is_number or expected == size:
        return ""
    prefix = f"{declared}, which is " if expected != declared else ""
    return f"the program expects {prefix}{expected}"
