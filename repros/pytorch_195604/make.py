"""Two branches of a cond, each of a kernel that takes precomputed sizes.

Nothing is planted: it is pytorch#195604, open when this was written. Inductor gives a
kernel sizes such as ``H*W`` by a name, ``ps0``, from a table of the graph that the
kernel is of. Launches are noted in that graph; what AOTInductor times a kernel with is
made up later, from the table of the graph around it. There ``ps0`` is unknown, or
another size, and the kernel reads beyond what was made up for it (2.11 stops where
``ps0`` is unknown: ``AssertionError: ps0``).

The program is the issue's: a picture and a mask of it, swept to one side once or twice.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.export import Dim

Sweep = Callable[[Tensor, Tensor], tuple[Tensor]]


def shifted(x: Tensor) -> tuple[Tensor, Tensor]:
    """Move it to the right, and down, by one pixel; the border stays."""
    right = torch.cat([x[..., :1], x[..., :-1]], -1)
    down = torch.cat([x[..., :1, :], x[..., :-1, :]], -2)
    return right, down


def sweep(times: int) -> Sweep:
    """Make a branch that blends a picture with its neighbours so many times."""

    def swept(picture: Tensor, mask: Tensor) -> tuple[Tensor]:
        for _ in range(times):
            left, above = shifted(picture)
            mask_left, mask_above = shifted(mask)
            edges = left * (mask - mask_left).abs() + above * (mask - mask_above).abs()
            picture = edges / (mask * mask + 1)
        return (picture,)

    return swept


class Sweeps(nn.Module):
    """Halve ``(1, 3, H, W)`` and a mask ``(1, 1, H, W)``; sweep as the mask says."""

    def forward(self, picture: Tensor, mask: Tensor) -> Tensor:
        size = [2 + (length - 1) // 2 for length in picture.shape[2:]]
        picture, mask = (
            F.interpolate(x, size, mode="bilinear") for x in (picture, mask)
        )
        (swept,) = torch.cond(mask.var() > 0.1, sweep(1), sweep(2), (picture, mask))
        return swept


def make() -> tuple[nn.Module, tuple[Tensor, Tensor], object]:
    """Return module, example inputs (picture, mask) and their dynamic sides."""
    sides = {2: Dim("H", min=4, max=4096), 3: Dim("W", min=4, max=4096)}
    seed = torch.Generator().manual_seed(0)
    picture, mask = (torch.rand(1, n, 33, 47, generator=seed) for n in (3, 1))
    return Sweeps().eval(), (picture, mask), (sides, sides)
