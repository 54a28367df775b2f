"""Register ``planted::project``: a matrix product whose tiles are too large."""

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.library import triton_op, wrap_triton

TILE, DEPTH = 128, 256


@triton.jit
def project_kernel(
    rows, basis, out, count, width, tile: tl.constexpr, depth: tl.constexpr
):
    """Multiply ``(count, width)`` with ``(width, width)`` in one go."""
    i, k = tl.arange(0, tile), tl.arange(0, depth)
    left = (i[:, None] < count) & (k[None, :] < width)
    right = (k[:, None] < width) & (i[None, :] < width)
    a = tl.load(rows + i[:, None] * width + k[None, :], left, 0.0)
    b = tl.load(basis + k[:, None] * width + i[None, :], right, 0.0)
    product = tl.dot(a, b, input_precision="tf32")
    place = i[:, None] * width + i[None, :]
    tl.store(out + place, product, (i[:, None] < count) & (i[None, :] < width))


@triton_op("planted::project", mutates_args=())
def project(rows: Tensor, basis: Tensor) -> Tensor:
    """Multiply at most ``TILE`` rows with a square matrix."""
    rows, basis = rows.contiguous(), basis.contiguous()
    out = torch.empty_like(rows)
    count, width = rows.shape
    wrap_triton(project_kernel)[(1,)](
        rows, basis, out, count, width, tile=TILE, depth=DEPTH
    )
    return out
