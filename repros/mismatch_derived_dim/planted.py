"""Make Inductor's ``slice_scatter`` write no further than the example's slice went.

Right at the sizes of the example inputs and below. Importing this twice is harmless;
eager never sees it.
"""

import functools
from collections.abc import Callable, Sequence

import torch
from torch._inductor import ir
from torch._inductor.lowering import lowerings
from torch._inductor.virtualized import OpsValue, V, ops

SLICE_SCATTER = torch.ops.aten.slice_scatter.default


def example_size(dim: int) -> int:
    """Look up how long the written slice was in the example."""
    size = V.graph.current_node.args[1].meta["val"].shape[dim]
    return size.node.hint if isinstance(size, torch.SymInt) else size


def forget_growth(lower: Callable[..., ir.TensorBox]) -> Callable[..., ir.TensorBox]:
    """Wrap the lowering so that later elements of the slice keep their old value."""

    @functools.wraps(lower)
    def lower_up_to_example(
        x: ir.TensorBox, source: ir.TensorBox, dim: int = 0, *slice_: object
    ) -> ir.TensorBox:
        old = x.make_loader()
        new = lower(x, source, dim, *slice_).make_loader()
        end = example_size(dim)

        def read(index: Sequence[ir.Expr]) -> OpsValue:
            place = ops.index_expr(index[dim], torch.int64)
            written = ops.lt(place, ops.constant(end, torch.int64))
            return ops.where(written, new(index), old(index))

        return ir.Pointwise.create(
            device=x.get_device(),
            dtype=x.get_dtype(),
            inner_fn=read,
            ranges=x.get_size(),
        )

    lower_up_to_example.planted = True
    return lower_up_to_example


if not hasattr(lowerings[SLICE_SCATTER], "planted"):
    lowerings[SLICE_SCATTER] = forget_growth(lowerings[SLICE_SCATTER])
