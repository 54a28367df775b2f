"""Register ``planted::leaky``, whose kernel reads a plain global."""

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.library import triton_op, wrap_triton

SLOPE = 0.125
BLOCK = 64


@triton.jit
def leaky_kernel(source, target, count, block: tl.constexpr):
    """Scale what is negative."""
    place = tl.program_id(0) * block + tl.arange(0, block)
    value = tl.load(source + place, place < count)
    tl.store(target + place, tl.where(value > 0, value, SLOPE * value), place < count)


@triton_op("planted::leaky", mutates_args=())
def leaky(value: Tensor) -> Tensor:
    """Scale negative elements by ``SLOPE``."""
    value = value.contiguous()
    scaled = torch.empty_like(value)
    grid = (triton.cdiv(value.numel(), BLOCK),)
    wrap_triton(leaky_kernel)[grid](value, scaled, value.numel(), block=BLOCK)
    return scaled
