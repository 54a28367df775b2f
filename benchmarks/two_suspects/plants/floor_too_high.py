"""Make Inductor lower ``floor`` as the next whole number. Eager never sees it."""

import functools

import torch
from torch._inductor.ir import TensorBox
from torch._inductor.lowering import lowerings

aten = torch.ops.aten
FLOOR = aten.floor.default

if not hasattr(lowerings[FLOOR], "planted"):
    floor = lowerings[FLOOR]

    @functools.wraps(floor)
    def lower_one_more(x: TensorBox) -> TensorBox:
        """Add one."""
        return lowerings[aten.add.Tensor](floor(x), 1)

    lower_one_more.planted = True
    lowerings[FLOOR] = lower_one_more
