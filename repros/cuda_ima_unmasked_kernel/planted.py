"""Register ``planted::softclip``: a Triton kernel, a helper, a constant, no mask."""

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.library import triton_op, wrap_triton

LIMIT = tl.constexpr(0.75)
BLOCK = 32


@triton.jit
def clip(value):
    """Bound a value between minus and plus ``LIMIT``."""
    return LIMIT * (2 * tl.sigmoid(2 * value / LIMIT) - 1)


@triton.jit
def softclip_kernel(source, target, block: tl.constexpr):
    """Clip a block of values; the last one may reach beyond the end: the bug."""
    place = tl.program_id(0) * block + tl.arange(0, block)
    tl.store(target + place, clip(tl.load(source + place)))


@triton_op("planted::softclip", mutates_args=())
def softclip(value: Tensor) -> Tensor:
    """Bound each element softly."""
    value = value.contiguous()
    clipped = torch.empty_like(value)
    grid = (triton.cdiv(value.numel(), BLOCK),)
    wrap_triton(softclip_kernel)[grid](value, clipped, block=BLOCK)
    return clipped
