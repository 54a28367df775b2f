"""Make Inductor's ``relu`` let a tenth of what is negative through.

Eager never sees it.
"""

import torch
from torch._inductor.ir import TensorBox
from torch._inductor.lowering import lowerings

aten = torch.ops.aten


def lower_leaky(x: TensorBox) -> TensorBox:
    """Take the larger of all and a tenth."""
    return lowerings[aten.maximum.default](x, lowerings[aten.mul.Tensor](x, 0.1))


lowerings[aten.relu.default] = lower_leaky
