"""Register ``planted::pick``, whose ids count from 1."""

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.library import triton_op, wrap_triton


@triton.jit
def pick_kernel(rows, ids, out, width, block: tl.constexpr):
    """Copy the row that one id names."""
    program, place = tl.program_id(0), tl.arange(0, block)
    row = tl.load(ids + program) - 1
    value = tl.load(rows + row * width + place, place < width)
    tl.store(out + program * width + place, value, place < width)


@triton_op("planted::pick", mutates_args=())
def pick(rows: Tensor, ids: Tensor) -> Tensor:
    """Pick rows of ``(rows, width)``, the first of which has the id 1."""
    rows = rows.contiguous()
    picked = torch.empty_like(rows)
    block = triton.next_power_of_2(rows.shape[1])
    wrap_triton(pick_kernel)[(ids.shape[0],)](
        rows, ids, picked, rows.shape[1], block=block
    )
    return picked
