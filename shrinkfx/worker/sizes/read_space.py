"""Free sizes of a program, as data."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import sympy
import torch
from torch import fx
from torch.export import ExportedProgram

from shrinkfx.errors import LoadError
from shrinkfx.program.sizes import Place, Space, Symbol, holds, names_in
from shrinkfx.worker.model import Inputs, user_placeholders
from shrinkfx.worker.private_api import graph_api
from shrinkfx.worker.private_api.graph_api import PythonPrinter

_print = PythonPrinter().doprint

_SOURCE = re.compile(r"L((?:\[(?:'[^']*'|\d+)\])+)(?:\.size\(\)\[(\d+)\])?")
"""How a guard names an input, or one of its dims: ``L['ids'].size()[0]``."""


def find_space(exported: ExportedProgram, inputs: Inputs) -> Space:
    """List the free sizes of a program, and its declarations about them.

    Args:
        inputs: the inputs of the run that gives the symbols their first sizes.
    """
    places = list(_places(exported, inputs))
    symbols = {s for _, size, _ in places for s in size.free_symbols}
    named = {str(symbol): _symbol(symbol, exported, places) for symbol in symbols}
    shown = [Place(name, dim, _print(size)) for (name, dim), size, _ in places]
    ordered = dict.fromkeys(n for p in shown for n in sorted(names_in(p.size)))
    return Space(
        symbols=tuple(named[name] for name in ordered),
        places=tuple(shown),
        conditions=tuple(_conditions(exported, set(named))),
        tensors=tuple(_tensors(exported, symbols)),
    )


def conditions(exported: ExportedProgram) -> list[str]:
    """List the conditions on sizes of a program, without the ranges of symbols."""
    values = (n.meta.get("val") for n in exported.graph.find_nodes(op="placeholder"))
    sizes = (size for value in values for size in getattr(value, "shape", [value]))
    free = (s.node.expr.free_symbols for s in sizes if isinstance(s, torch.SymInt))
    return _conditions(exported, {str(symbol) for each in free for symbol in each})


def _places(
    exported: ExportedProgram, inputs: Inputs
) -> Iterator[tuple[tuple[str, int | None], sympy.Expr, int]]:
    """Yield the place, expression and number of each free size in the inputs."""
    nodes = user_placeholders(exported, inputs)
    for node, real in zip(nodes, inputs.flat(), strict=True):
        value = node.meta.get("val")
        if isinstance(value, torch.SymInt):
            yield (node.name, None), value.node.expr, int(real)
        elif isinstance(value, torch.Tensor):
            for dim, size in enumerate(value.shape):
                if isinstance(size, torch.SymInt):
                    yield (node.name, dim), size.node.expr, real.shape[dim]


def _symbol(
    symbol: sympy.Symbol,
    exported: ExportedProgram,
    places: list[tuple[tuple[str, int | None], sympy.Expr, int]],
) -> Symbol:
    bounds = exported.range_constraints.get(symbol)
    low, high = (bounds.lower, bounds.upper) if bounds else (2, sympy.oo)
    sizes = {
        size: number for _, size, number in places if size.free_symbols == {symbol}
    }
    size, number = min(sizes.items(), key=lambda pair: len(str(pair[0])))
    # A dim such as 2*s0 + 1 determines s0, too.
    factor, offset = size.diff(symbol), size.subs(symbol, 0)
    number = (number - int(offset)) // int(factor)
    top = int(high) if isinstance(high, (int, sympy.Integer)) else None
    return Symbol(str(symbol), max(0, int(low)), top, number)


def _conditions(exported: ExportedProgram, names: set[str]) -> list[str]:
    """List the conditions besides the symbols' own ranges.

    They come from the ranges of derived dims, and from guards.
    """
    texts = []
    for size, bounds in exported.range_constraints.items():
        if not isinstance(size, sympy.Symbol):
            ends = [b if isinstance(b, sympy.Integer) else None for b in _ends(bounds)]
            texts += [f"{ends[0]} <= {_print(size)}"] if ends[0] is not None else []
            texts += [f"{_print(size)} <= {ends[1]}"] if ends[1] is not None else []
    values = {n.name: n.meta.get("val") for n in exported.graph.nodes}
    guards = getattr(exported, "_guards_code", None) or []
    texts += [_SOURCE.sub(lambda m: _size_of(m, values), guard) for guard in guards]
    return [text for text in dict.fromkeys(texts) if _uses_only(text, names)]


def _ends(bounds: Any) -> tuple[Any, Any]:
    return sympy.sympify(bounds.lower), sympy.sympify(bounds.upper)


def _size_of(found: re.Match[str], values: dict[str, Any]) -> str:
    """Replace the source of a size in a guard by its symbolic expression."""
    path = "_".join(re.findall(r"[^\[\]']+", found[1]))
    value = values.get(re.sub(r"\W", "_", path).lower())
    if found[2] is not None and isinstance(value, torch.Tensor):
        value = value.shape[int(found[2])]
    if isinstance(value, torch.SymInt):
        return f"({_print(value.node.expr)})"
    return str(value) if isinstance(value, int) else found[0]


def _uses_only(text: str, names: set[str]) -> bool:
    """Return whether a condition is arithmetic on the free sizes, and nothing else."""
    try:
        return set() < names_in(text) <= names
    except (ValueError, SyntaxError):
        return False


def _tensors(exported: ExportedProgram, symbols: set[sympy.Symbol]) -> list[str]:
    """List expressions for the element counts of tensors with a free size."""
    counts: dict[str, None] = {}
    for node in exported.graph.nodes:
        for value in graph_api.pytree.tree_leaves(node.meta.get("val")):
            if isinstance(value, torch.Tensor):
                sizes = [
                    s.node.expr if isinstance(s, torch.SymInt) else s
                    for s in value.shape
                ]
                count = sympy.Mul(*sizes)
                if count.free_symbols and count.free_symbols <= symbols:
                    counts[_print(count)] = None
    names = {str(symbol) for symbol in symbols}
    return [text for text in counts if _uses_only(text, names)]


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
            raise LoadError(source, f"{where} is {size!r}", f"{problem}{_TO_TEST}")
    named = {str(symbol): int(size) for symbol, size in bound.items()}
    conditions = find_space(program, example).conditions if named else ()
    for condition in conditions:
        if names_in(condition) <= set(named) and not holds(condition, named):
            where = ", ".join(f"{name}={size}" for name, size in named.items())
            problem = f"the program declares {condition}"
            raise LoadError(source, f"its sizes are {where}", f"{problem}{_TO_TEST}")


_TO_TEST = (
    "; pass other inputs, or, to reduce what the compiled program does with these, add "
    "--until check-inputs or --env AOTI_RUNTIME_CHECK_INPUTS=1"
)


def _sizes(node: fx.Node, leaf: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield the place, the declared and the actual number of each size or number."""
    value = node.meta.get("val")
    if isinstance(value, torch.Tensor) and isinstance(leaf, torch.Tensor):
        for dim, (size, real) in enumerate(zip(value.shape, leaf.shape, strict=True)):
            declared = size.node.expr if isinstance(size, torch.SymInt) else size
            yield f"dim {dim} of input {node.name}", declared, int(real)
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
    return (
        f"the program declares it as {declared}, from {bounds.lower} to {bounds.upper}"
    )


def _unequal(declared: Any, size: Any, bound: Mapping[Any, sympy.Integer]) -> str:
    if not isinstance(declared, sympy.Expr):
        same = type(declared) is type(size) and declared == size
        return "" if same else f"the program was exported for {declared!r} only"
    expected = declared.xreplace(bound)
    if not expected.is_number or expected == size:
        return ""
    prefix = f"{declared}, which is " if expected != declared else ""
    return f"the program expects {prefix}{expected}"
