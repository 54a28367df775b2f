"""Make Inductor's ``flip`` check that its positions are within one block of 1,024.

Right up to there. Importing this twice is harmless; eager never sees it.
"""

import functools
from collections.abc import Callable, Sequence

import torch
from torch._inductor import ir
from torch._inductor.lowering import lowerings
from torch._inductor.virtualized import OpsValue, ops

# Inductor decomposes ``flip`` to ``rev`` before it lowers.
REV = torch.ops.prims.rev.default
BLOCK = 1024


def check_block(lower: Callable[..., ir.TensorBox]) -> Callable[..., ir.TensorBox]:
    """Wrap the lowering so that it refuses what is beyond the block."""

    @functools.wraps(lower)
    def lower_checked(x: ir.TensorBox, dims: Sequence[int]) -> ir.TensorBox:
        load, size = lower(x, dims).make_loader(), x.get_size()

        def read(index: Sequence[ir.Expr]) -> OpsValue:
            place = ops.index_expr(index[dims[0]], torch.int64)
            known = ops.indirect_indexing(place, BLOCK, check=True)
            return load([*index[: dims[0]], known, *index[dims[0] + 1 :]])

        return ir.Pointwise.create(
            device=x.get_device(), dtype=x.get_dtype(), inner_fn=read, ranges=size
        )

    lower_checked.planted = True
    return lower_checked


if not hasattr(lowerings[REV], "planted"):
    lowerings[REV] = check_block(lowerings[REV])
