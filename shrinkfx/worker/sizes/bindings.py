"""What the symbols of a program stand for in one run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sympy
import torch
from torch.export import ExportedProgram

from shrinkfx.program.listing.strides import reach

SizesByName = dict[Any, sympy.Integer]
"""What each symbol of a program stands for in one run."""


def bind(exported: ExportedProgram, flat: Sequence[Any]) -> SizesByName:
    """Read the symbols off the flat inputs of a run, and sizes computed from them."""
    sizes: SizesByName = {}
    placeholders = [n for n in exported.graph.nodes if n.op == "placeholder"]
    for node, real in zip(placeholders, flat, strict=True):
        fake = node.meta.get("val")
        if isinstance(fake, torch.SymInt):
            sizes.setdefault(fake.node.expr, sympy.Integer(real))
        if not isinstance(fake, torch.Tensor) or not isinstance(real, torch.Tensor):
            continue
        for symbolic, size in zip(fake.shape, real.shape, strict=True):
            if isinstance(symbolic, torch.SymInt):
                sizes.setdefault(symbolic.node.expr, sympy.Integer(size))
    for size, number in list(sizes.items()):
        for symbol in size.free_symbols - sizes.keys():
            if tells(size, symbol):
                offset = size.subs(symbol, 0)
                sizes[symbol] = (number - offset) // size.diff(symbol)
    return sizes


def sizes_of(value: torch.Tensor) -> list[torch.SymInt]:
    """List the sizes of a tensor that are not fixed."""
    sizes: Sequence[Any] = value.shape
    return [size for size in sizes if isinstance(size, torch.SymInt)]


def tells(size: Any, symbol: sympy.Symbol) -> bool:
    """Tell whether a symbol can be computed from a size: it is linear in it."""
    return (
        isinstance(size, sympy.Expr)
        and size.free_symbols == {symbol}
        and size.diff(symbol).is_Integer
    )


def evaluate(size: int | torch.SymInt, sizes: SizesByName) -> int | None:
    """Work out a size or stride, or None if it depends on data."""
    if isinstance(size, int):
        return size
    value = size.node.expr.xreplace(sizes)
    return int(value) if value.is_number else None


def declared_bytes(fake: torch.Tensor, sizes: SizesByName) -> int | None:
    """Count the bytes that a value is declared to reach over; None: data decides."""
    shape = [evaluate(size, sizes) for size in fake.shape]
    stride = [evaluate(step, sizes) for step in fake.stride()]
    known = [(a, b) for a, b in zip(shape, stride, strict=True) if None not in (a, b)]
    if len(known) < len(shape):
        return None
    return reach([a or 0 for a, _ in known], [b or 0 for _, b in known]) * fake.itemsize


def nbytes(tensor: torch.Tensor) -> int:
    """Count bytes, at the sizes of the example inputs."""
    total = tensor.element_size()
    for size in tensor.shape:
        hint = size.node.hint if isinstance(size, torch.SymInt) else size
        total *= int(hint) if hint is not None else 1
    return total
