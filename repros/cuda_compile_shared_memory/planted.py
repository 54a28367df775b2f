"""Register ``planted::project``: a matrix product in one tile that is too large."""

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.library import triton_op, wrap_triton

TILE = 256


@triton.jit
def project_kernel(rows, basis, out, count, width, tile: tl.constexpr):
    """Multiply ``(count, width)`` with ``(width, width)`` in one go."""
    i = tl.arange(0, tile)
    at = i[:, None] * width + i[None, :]
    a = tl.load(rows + at, (i[:, None] < count) & (i[None, :] < width), 0.0)
    b = tl.load(basis + at, (i[:, None] < width) & (i[None, :] < width), 0.0)
    product = tl.dot(a, b, input_precision="tf32")
    tl.store(out + at, product, (i[:, None] < count) & (i[None, :] < width))


@triton_op("planted::project", mutates_args=())
def project(rows: Tensor, basis: Tensor) -> Tensor:
    """Multiply at most ``TILE`` rows with a square matrix."""
    rows, basis = rows.contiguous(), basis.contiguous()
    out = torch.empty_like(rows)
    count, width = rows.shape
    wrap_triton(project_kernel)[(1,)](rows, basis, out, count, width, tile=TILE)
    return out
