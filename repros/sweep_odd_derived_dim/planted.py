"""Make Inductor's ``cos`` off by one where its operand's first dim is odd.

Right where it is even. Importing this twice is harmless; eager never sees it.
"""

import functools
from collections.abc import Callable, Sequence

import torch
from torch._inductor import ir
from torch._inductor.lowering import lowerings
from torch._inductor.virtualized import OpsValue, ops

COS = torch.ops.aten.cos.default


def break_odd(lower: Callable[..., ir.TensorBox]) -> Callable[..., ir.TensorBox]:
    """Wrap the lowering so that it takes pairs for granted."""

    @functools.wraps(lower)
    def lower_even(x: ir.TensorBox) -> ir.TensorBox:
        load, size = lower(x).make_loader(), x.get_size()

        def read(index: Sequence[ir.Expr]) -> OpsValue:
            rest = ops.index_expr(size[0] % 2, torch.int64)
            value = load(index)
            wrong = ops.add(value, ops.constant(1.0, x.get_dtype()))
            return ops.where(ops.eq(rest, ops.constant(1, torch.int64)), wrong, value)

        return ir.Pointwise.create(
            device=x.get_device(), dtype=x.get_dtype(), inner_fn=read, ranges=size
        )

    lower_even.planted = True
    return lower_even


if not hasattr(lowerings[COS], "planted"):
    lowerings[COS] = break_odd(lowerings[COS])
