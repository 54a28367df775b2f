"""Make Inductor's ``sigmoid`` of a square matrix off by one.

Right for all others. Importing this twice is harmless; eager never sees it.
"""

import functools
from collections.abc import Callable, Sequence

import torch
from torch._inductor import ir
from torch._inductor.lowering import lowerings
from torch._inductor.virtualized import OpsValue, ops

SIGMOID = torch.ops.aten.sigmoid.default


def break_squares(lower: Callable[..., ir.TensorBox]) -> Callable[..., ir.TensorBox]:
    """Wrap the lowering so that equal dims go another way."""

    @functools.wraps(lower)
    def lower_oblong(x: ir.TensorBox) -> ir.TensorBox:
        load, size = lower(x).make_loader(), x.get_size()
        if len(size) != 2:
            return lower(x)

        def read(index: Sequence[ir.Expr]) -> OpsValue:
            rows, columns = (ops.index_expr(s, torch.int64) for s in size)
            value = load(index)
            wrong = ops.add(value, ops.constant(1.0, x.get_dtype()))
            return ops.where(ops.eq(rows, columns), wrong, value)

        return ir.Pointwise.create(
            device=x.get_device(), dtype=x.get_dtype(), inner_fn=read, ranges=size
        )

    lower_oblong.planted = True
    return lower_oblong


if not hasattr(lowerings[SIGMOID], "planted"):
    lowerings[SIGMOID] = break_squares(lowerings[SIGMOID])
