"""Hide a read past the end of a large matrix between two norms.

Planted: planted.py has Inductor lower ``erfinv`` so that it reads eight columns to the
right where rows are long and no multiple of 16. No memory follows the last row.
"""

import sys
from pathlib import Path

import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from _haystack import random_tensor

WIDTH = 4104


class Gaussianised(nn.Module):
    """Map features to quantiles of a normal distribution, gated by others."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.after = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.bias = nn.Parameter(random_tensor(WIDTH, seed=3))

    def forward(self, features: Tensor, gates: Tensor) -> tuple[Tensor, Tensor]:
        mixed = self.before(features) * 0.5 + gates.tanh()
        normal = torch.erfinv((mixed * 0.1).clamp(-0.9, 0.9))
        out = self.after(mixed + normal).relu() + self.bias
        return out.softmax(-1) * gates, mixed.mean(-1)


def make() -> tuple[nn.Module, tuple[Tensor, Tensor], None]:
    """Return module, example inputs (features and gates) and no dynamic shapes."""
    features, gates = (random_tensor(2048, WIDTH, seed=seed) for seed in (1, 2))
    return Gaussianised().eval(), (features, gates), None
