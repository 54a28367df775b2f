"""Hide a crash that only large images show between filters of images.

Planted: planted.py has Inductor lower ``hypot`` so that it reads far outside
of its operand where the image has at least 100 rows and 200 columns.
"""

import sys
from pathlib import Path

import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from _haystack import random_tensor


class Edges(nn.Module):
    """Sharpen an image, find its edges, and sum up their strengths."""

    def __init__(self) -> None:
        super().__init__()
        self.gamma = nn.Parameter(random_tensor(3, 1, 1, seed=2).abs())

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        light = images.sigmoid() ** self.gamma
        blurred = nn.functional.avg_pool2d(light, 3, stride=1, padding=1)
        sharp = (2 * light - blurred).clamp(0, 1)
        across = sharp.diff(dim=-1, append=sharp[..., -1:])
        down = sharp.diff(dim=-2, append=sharp[..., -1:, :])
        strength = torch.hypot(across, down)
        totals = strength.cumsum(-1)
        return totals / totals[..., -1:], (strength > 0.5).float().mean((2, 3)), sharp


def make() -> tuple[nn.Module, tuple[Tensor], None]:
    """Return module, example inputs (one image) and no dynamic shapes."""
    return Edges().eval(), (random_tensor(1, 3, 2048, 2048, seed=1),), None
