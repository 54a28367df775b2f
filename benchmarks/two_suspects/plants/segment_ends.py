"""Make Inductor's ``sum`` of booleans one too large. Eager never sees it."""

import functools
from collections.abc import Sequence

import torch
from torch._inductor.ir import TensorBox
from torch._inductor.lowering import lowerings

aten = torch.ops.aten
SUM = aten.sum.dim_IntList

if not hasattr(lowerings[SUM], "planted"):
    add_up = lowerings[SUM]

    @functools.wraps(add_up)
    def lower_one_more(
        x: TensorBox, dims: Sequence[int], *rest: object, **options: object
    ) -> TensorBox:
        """Count one more of what is true."""
        total = add_up(x, dims, *rest, **options)
        if x.get_dtype() is torch.bool:
            return lowerings[aten.add.Tensor](total, 1)
        return total

    lower_one_more.planted = True
    lowerings[SUM] = lower_one_more
