"""Make Inductor start the windows of ``as_strided`` a step of dim 0 too late.

Importing this twice is harmless; eager never sees it.
"""

from collections.abc import Sequence

import torch
from torch._inductor import ir
from torch._inductor.lowering import lowerings

AS_STRIDED = torch.ops.aten.as_strided.default
ORIGINAL = "shrinkfx_planted_original"


def lower_as_strided(
    x: ir.TensorBox,
    size: Sequence[ir.Expr],
    stride: Sequence[ir.Expr],
    storage_offset: ir.Expr | None = None,
) -> ir.TensorBox:
    """Shift the windows by a row, after Inductor has checked that they are inside."""
    view = getattr(lower_as_strided, ORIGINAL)(x, size, stride, storage_offset)
    layout = view.data.layout
    layout.offset = layout.offset + stride[0]
    return view


if not hasattr(lowerings[AS_STRIDED], ORIGINAL):
    setattr(lower_as_strided, ORIGINAL, lowerings[AS_STRIDED])
    lowerings[AS_STRIDED] = lower_as_strided
