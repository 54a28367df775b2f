"""Make Inductor's ``logcumsumexp`` use a buffer of 2**52 bytes.

No machine maps as much, so it is refused even where memory may be overcommitted.
Importing this twice is harmless; eager never sees it.
"""

import functools
from collections.abc import Callable, Sequence

import torch
from torch._inductor import ir
from torch._inductor.lowering import lowerings
from torch._inductor.virtualized import OpsValue, ops

LOGCUMSUMEXP = torch.ops.aten.logcumsumexp.default
ELEMENTS = 2**50


def ask_for_more(lower: Callable[..., ir.TensorBox]) -> Callable[..., ir.TensorBox]:
    """Wrap a lowering so that it copies the first element far too often."""

    @functools.wraps(lower)
    def lower_with_copies(x: ir.TensorBox, dim: int) -> ir.TensorBox:
        device, dtype = x.get_device(), x.get_dtype()
        load, first = x.make_loader(), [0] * len(x.get_size())
        copies = ir.Pointwise.create(
            device=device,
            dtype=dtype,
            inner_fn=lambda _: load(first),
            ranges=[ELEMENTS],
        )
        copies.realize()
        right, copy = lower(x, dim).make_loader(), copies.make_loader()

        def read(index: Sequence[ir.Expr]) -> OpsValue:
            nothing = ops.mul(copy([0]), ops.constant(0.0, dtype))
            return ops.add(right(index), nothing)

        return ir.Pointwise.create(
            device=device, dtype=dtype, inner_fn=read, ranges=x.get_size()
        )

    lower_with_copies.planted = True
    return lower_with_copies


if not hasattr(lowerings[LOGCUMSUMEXP], "planted"):
    lowerings[LOGCUMSUMEXP] = ask_for_more(lowerings[LOGCUMSUMEXP])
