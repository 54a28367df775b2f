"""Hide a buffer that counts calls in a residual network; only the second call fails."""

import sys
from pathlib import Path

import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from _haystack import ResidualCnn, random_tensor


class Warmup(nn.Module):
    """Scale features by a factor that grows with each call."""

    steps: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("steps", torch.zeros(1))

    def forward(self, features: Tensor) -> Tensor:
        self.steps.add_(1)
        return features * (self.steps / 4)


def make() -> tuple[nn.Module, tuple[Tensor], None]:
    """Return module, example inputs (one batch of images) and no dynamic shapes."""
    images = random_tensor(2, 3, 12, 12, seed=1)
    return ResidualCnn(Warmup()).eval(), (images,), None
