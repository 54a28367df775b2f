"""Make Inductor's ``tanh`` yield NaN where its operand's second dim is 33.

Right at all other sizes. Importing this twice is harmless; eager never sees it.
"""

import functools
from collections.abc import Callable, Sequence

import torch
from torch._inductor import ir
from torch._inductor.lowering import lowerings
from torch._inductor.virtualized import OpsValue, ops

TANH = torch.ops.aten.tanh.default
BROKEN = 33


def break_at(lower: Callable[..., ir.TensorBox]) -> Callable[..., ir.TensorBox]:
    """Wrap the lowering so that one length is not computed."""

    @functools.wraps(lower)
    def lower_but_one(x: ir.TensorBox) -> ir.TensorBox:
        load, size = lower(x).make_loader(), x.get_size()

        def read(index: Sequence[ir.Expr]) -> OpsValue:
            length = ops.index_expr(size[1], torch.int64)
            broken = ops.eq(length, ops.constant(BROKEN, torch.int64))
            nothing = ops.constant(float("nan"), x.get_dtype())
            return ops.where(broken, nothing, load(index))

        return ir.Pointwise.create(
            device=x.get_device(), dtype=x.get_dtype(), inner_fn=read, ranges=size
        )

    lower_but_one.planted = True
    return lower_but_one


if not hasattr(lowerings[TANH], "planted"):
    lowerings[TANH] = break_at(lowerings[TANH])
