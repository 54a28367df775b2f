"""Register ``planted::quantise``: an autotuned Triton kernel that asserts."""

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.library import triton_op, wrap_triton

LEVELS = 15
CONFIGS = [triton.Config({"block": 32}), triton.Config({"block": 64}, num_warps=2)]


@triton.jit
def round_half_up(value):
    """Round to the nearest whole number."""
    return tl.floor(value + 0.5)


@triton.autotune(configs=CONFIGS, key=["count"])
@triton.jit
def quantise_kernel(
    source, scales, target, count, inner, channels, block: tl.constexpr
):
    """Round a block of values to multiples of their channel's scale."""
    place = tl.program_id(0) * block + tl.arange(0, block)
    inside = place < count
    scale = tl.load(scales + (place // inner) % channels, inside, 1.0)
    tl.device_assert(scale > 0, "scale must be positive")
    value = tl.load(source + place, inside, 0.0)
    tl.store(target + place, round_half_up(value / scale) * scale, inside)


@triton_op("planted::quantise", mutates_args=())
def quantise(features: Tensor, scale: Tensor) -> Tensor:
    """Round ``(batch, channels, height, width)`` by ``(channels,)``."""
    features = features.contiguous()
    rounded = torch.empty_like(features)
    count = features.numel()
    inner = features.shape[2] * features.shape[3]

    def grid(meta: dict[str, int]) -> tuple[int]:
        return (triton.cdiv(count, meta["block"]),)

    wrap_triton(quantise_kernel)[grid](
        features, scale, rounded, count, inner, features.shape[1]
    )
    return rounded
