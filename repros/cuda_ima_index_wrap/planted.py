"""Register ``planted::through_cache``, whose kernel computes offsets in 32 bits."""

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.library import triton_op, wrap_triton

SLOTS, STRIDE = 70_000, 32_768


@triton.jit
def keep_kernel(rows, slots, cache, stride, width: tl.constexpr):
    """Put one row into its slot of the cache."""
    row, place = tl.program_id(0), tl.arange(0, width)
    start = tl.load(slots + row) * stride  # the bug: both have 32 bits
    tl.store(cache + start + place, tl.load(rows + row * width + place))


@triton.jit
def fetch_kernel(cache, slots, rows, stride, width: tl.constexpr):
    """Get one row out of its slot of the cache."""
    row, place = tl.program_id(0), tl.arange(0, width)
    start = tl.load(slots + row) * stride  # the same
    tl.store(rows + row * width + place, tl.load(cache + start + place))


@triton_op("planted::through_cache", mutates_args=())
def through_cache(rows: Tensor, slots: Tensor) -> Tensor:
    """Write rows of ``(rows, width)`` into a cache, and read them again."""
    rows = rows.contiguous()
    cache = torch.empty(SLOTS, STRIDE, dtype=rows.dtype, device=rows.device)
    fetched = torch.empty_like(rows)
    grid, width = (rows.shape[0],), rows.shape[1]
    wrap_triton(keep_kernel)[grid](rows, slots, cache, STRIDE, width=width)
    wrap_triton(fetch_kernel)[grid](cache, slots, fetched, STRIDE, width=width)
    return fetched
