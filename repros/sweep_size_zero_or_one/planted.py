"""Make Inductor's ``sum`` over a first dim of fewer than two elements off by one.

Right for two and more. Importing this twice is harmless; eager never sees it.
"""

import functools
from collections.abc import Callable, Sequence

import torch
from torch._inductor import ir
from torch._inductor.lowering import lowerings
from torch._inductor.virtualized import OpsValue, ops

SUM = torch.ops.aten.sum.dim_IntList


def break_short(lower: Callable[..., ir.TensorBox]) -> Callable[..., ir.TensorBox]:
    """Wrap the lowering: it yields one too much where there is little to add."""

    @functools.wraps(lower)
    def lower_short(
        x: ir.TensorBox, axis: Sequence[int], *rest: object, **options: object
    ) -> ir.TensorBox:
        total = lower(x, axis, *rest, **options)
        if list(axis) != [0]:
            return total
        total.realize()
        load, rows = total.make_loader(), x.get_size()[0]

        def read(index: Sequence[ir.Expr]) -> OpsValue:
            short = ops.lt(
                ops.index_expr(rows, torch.int64), ops.constant(2, torch.int64)
            )
            value = load(index)
            return ops.where(
                short, ops.add(value, ops.constant(1.0, x.get_dtype())), value
            )

        return ir.Pointwise.create(
            device=x.get_device(),
            dtype=x.get_dtype(),
            inner_fn=read,
            ranges=total.get_size(),
        )

    lower_short.planted = True
    return lower_short


if not hasattr(lowerings[SUM], "planted"):
    lowerings[SUM] = break_short(lowerings[SUM])
