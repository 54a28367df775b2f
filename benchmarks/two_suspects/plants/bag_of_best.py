"""Make Inductor's ``argmax`` one too large. Eager never sees it."""

import functools

import torch
from torch._inductor.ir import TensorBox
from torch._inductor.lowering import lowerings

aten = torch.ops.aten
ARGMAX = aten.argmax.default

if not hasattr(lowerings[ARGMAX], "planted"):
    find = lowerings[ARGMAX]

    @functools.wraps(find)
    def lower_one_more(x: TensorBox, *args: object, **options: object) -> TensorBox:
        """Name the column after the best."""
        return lowerings[aten.add.Tensor](find(x, *args, **options), 1)

    lower_one_more.planted = True
    lowerings[ARGMAX] = lower_one_more
