"""Make Inductor lower ``atan`` for small angles only. Eager never sees it."""

import torch
from torch._inductor.ir import TensorBox
from torch._inductor.lowering import lowerings


def lower_small(x: TensorBox) -> TensorBox:
    """Take an angle for its tangent, or nearly so."""
    return lowerings[torch.ops.aten.mul.Tensor](x, 0.95)


lowerings[torch.ops.aten.atan.default] = lower_small
