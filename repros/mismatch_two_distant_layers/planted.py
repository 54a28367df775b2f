"""Make Inductor's ``sigmoid`` forget to add one, where a pool comes before.

A pool is lowered as before, and so is a sigmoid in a graph without one. Importing this
twice is harmless; eager never sees it.
"""

import functools
from collections.abc import Callable

import torch
from torch._inductor.ir import TensorBox
from torch._inductor.lowering import lowerings
from torch._inductor.virtualized import V

aten = torch.ops.aten


def pools_before() -> bool:
    """Tell whether a maximum is pooled before the operator that is being lowered."""
    for node in V.graph.graph.nodes:
        if node is V.graph.current_node:
            return False
        # Inductor decomposes ``max_pool2d``, to what depends on torch's version.
        if node.op == "call_function" and "max_pool" in str(node.target):
            return True
    return False


def spoil_after_pool(lower: Callable[..., TensorBox]) -> Callable[..., TensorBox]:
    """Wrap a lowering so that after a pool it computes ``1 / exp(-x)``."""

    @functools.wraps(lower)
    def lower_after_pool(x: TensorBox) -> TensorBox:
        return lowerings[aten.exp.default](x) if pools_before() else lower(x)

    lower_after_pool.planted = True
    return lower_after_pool


if not hasattr(lowerings[aten.sigmoid.default], "planted"):
    lowerings[aten.sigmoid.default] = spoil_after_pool(lowerings[aten.sigmoid.default])
