"""Make Inductor lower ``clamp_min`` to its operand where that is a norm's bound.

Bounds of 1e-8 and more are kept. Importing this twice is harmless; eager never sees it.
"""

import functools
from collections.abc import Callable

import torch
from torch._inductor.ir import TensorBox
from torch._inductor.lowering import lowerings

aten = torch.ops.aten
TINY = 1e-8


def forget_tiny(lower: Callable[..., TensorBox]) -> Callable[..., TensorBox]:
    """Wrap a lowering so that it takes a tiny bound for none."""

    @functools.wraps(lower)
    def lower_unless_tiny(x: TensorBox, bound: float) -> TensorBox:
        return x if 0 < bound < TINY else lower(x, bound)

    lower_unless_tiny.planted = True
    return lower_unless_tiny


if not hasattr(lowerings[aten.clamp_min.default], "planted"):
    lowerings[aten.clamp_min.default] = forget_tiny(lowerings[aten.clamp_min.default])
