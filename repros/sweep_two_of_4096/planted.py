"""Make Inductor's ``copysign`` read far outside at 1,023 and 1,025 rows.

Right at all other sizes. Importing this twice is harmless; eager never sees it.
"""

import functools
from collections.abc import Callable, Sequence

import torch
from torch._inductor import ir
from torch._inductor.lowering import lowerings
from torch._inductor.virtualized import OpsValue, ops

COPYSIGN = torch.ops.aten.copysign.Tensor
BROKEN = (1023, 1025)
FAR = 1 << 42


def read_far(lower: Callable[..., ir.TensorBox]) -> Callable[..., ir.TensorBox]:
    """Wrap the lowering so that it leaves its operand's memory at two sizes."""

    @functools.wraps(lower)
    def lower_far(magnitude: ir.TensorBox, sign: ir.TensorBox) -> ir.TensorBox:
        new = lower(magnitude, sign)
        new.realize()
        load, size = new.make_loader(), new.get_size()

        def read(index: Sequence[ir.Expr]) -> OpsValue:
            rows = ops.index_expr(size[0], torch.int64)
            one, other = (ops.eq(rows, ops.constant(n, torch.int64)) for n in BROKEN)
            place = ops.index_expr(index[0], torch.int64)
            away = ops.add(place, ops.constant(FAR, torch.int64))
            place = ops.where(ops.logical_or(one, other), away, place)
            place = ops.indirect_indexing(place, size[0], check=False)
            return load([place, *index[1:]])

        return ir.Pointwise.create(
            device=new.get_device(), dtype=new.get_dtype(), inner_fn=read, ranges=size
        )

    lower_far.planted = True
    return lower_far


if not hasattr(lowerings[COPYSIGN], "planted"):
    lowerings[COPYSIGN] = read_far(lowerings[COPYSIGN])
