"""Values of a program's symbolic sizes in one run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sympy
import torch
from torch.export import ExportedProgram

from shrinkfx.program.listing.tensor_specs import storage_span

SizesByName = dict[Any, sympy.Integer]
"""The number that each symbolic size of a program has in one run."""


def bind_symbols(exported: ExportedProgram, flat: Sequence[Any]) -> SizesByName:
    """Read symbols from the flat inputs of a run, or compute them from sizes."""
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
            if determines_symbol(size, symbol):
                offset = size.subs(symbol, 0)
                sizes[symbol] = (number - offset) // size.diff(symbol)
    return sizes


def sizes_of(value: torch.Tensor) -> list[torch.SymInt]:
    """List the symbolic sizes of a tensor."""
    sizes: Sequence[Any] = value.shape
    return [size for size in sizes if isinstance(size, torch.SymInt)]


def determines_symbol(size: Any, symbol: sympy.Symbol) -> bool:
    """Return whether a size determines a symbol, because it is linear in it."""
    return (
        isinstance(size, sympy.Expr)
        and size.free_symbols == {symbol}
        and size.diff(symbol).is_Integer
    )


def evaluate_size(size: int | torch.SymInt, sizes: SizesByName) -> int | None:
    """Return the number of a size or stride, or None if it depends on data."""
    if isinstance(size, int):
        return size
    value = size.node.expr.xreplace(sizes)
    return int(value) if value.is_number else None


def declared_bytes(fake: torch.Tensor, sizes: SizesByName) -> int | None:
    """Return the declared extent of a value in bytes; None if it depends on data."""
    shape = [evaluate_size(size, sizes) for size in fake.shape]
    stride = [evaluate_size(step, sizes) for step in fake.stride()]
    known = [(a, b) for a, b in zip(shape, stride, strict=True) if None not in (a, b)]
    if len(known) < len(shape):
        return None
    return (
        storage_span([a or 0 for a, _ in known], [b or 0 for _, b in known])
        * fake.itemsize
    )


def nbytes(tensor: torch.Tensor) -> int:
    """Return the bytes of a tensor at the sizes of the example inputs."""
    total = tensor.element_size()
    for size in tensor.shape:
        hint = size.node.hint if isinstance(size, torch.SymInt) else size
        total *= int(hint) if hint is not None else 1
    return total
