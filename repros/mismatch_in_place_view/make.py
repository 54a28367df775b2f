"""Hide an in-place product on a view, which compiled code loses, in a residual network.

Planted: planted.py rewrites ``mul_`` before Inductor functionalises, and what it
should have written through the view is lost. Without in-place operators nothing
fails, and the network has many: activations, and shortcuts added to features.
"""

import sys
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from _haystack import random_tensor


class InPlaceBlock(nn.Module):
    """Convolve, and add to the shortcut in place, upper half and lower half apart."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, features: Tensor) -> Tensor:
        update = F.relu_(self.norm(self.conv(features)))
        upper, lower = update.chunk(2, 2)
        upper.add_(features.chunk(2, 2)[0])
        lower.sub_(0.5)
        return update


class Damp(nn.Module):
    """Damp the first channel in place."""

    def forward(self, features: Tensor) -> Tensor:
        features.select(1, 0).mul_(0.125)
        return features


def make() -> tuple[nn.Module, tuple[Tensor], None]:
    """Return module, example inputs (one batch of images) and no dynamic shapes."""
    torch.manual_seed(0)
    blocks = [InPlaceBlock(4) for _ in range(6)]
    module = nn.Sequential(*blocks[:3], Damp(), *blocks[3:], nn.ReLU(inplace=True))
    return module.eval(), (random_tensor(2, 4, 8, 8, seed=1),), None
