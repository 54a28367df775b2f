"""What the symbols of a program stand for in one run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sympy
import torch
from torch.export import ExportedProgram

Sizes = dict[Any, sympy.Integer]
"""What each symbol of a program stands for in one run."""


def bind(exported: ExportedProgram, flat: Sequence[Any]) -> Sizes:
    """Read the symbols off the flat inputs of a run."""
    sizes: Sizes = {}
    placeholders = [n for n in exported.graph.nodes if n.op == "placeholder"]
    for node, real in zip(placeholders, flat, strict=True):
        fake = node.meta.get("val")
        if not isinstance(fake, torch.Tensor) or not isinstance(real, torch.Tensor):
            continue
        for symbolic, size in zip(fake.shape, real.shape, strict=True):
            if isinstance(symbolic, torch.SymInt):
                sizes.setdefault(symbolic.node.expr, sympy.Integer(size))
    return sizes


def evaluate(size: int | torch.SymInt, sizes: Sizes) -> int | None:
    """Work out a size or stride, or None if it depends on data."""
    if isinstance(size, int):
        return size
    value = size.node.expr.xreplace(sizes)
    return int(value) if value.is_number else None
