"""Hide a device assertion that does not hold in an image classifier.

Planted: the kernel of ``planted::quantise`` asserts that each channel's scale is
positive. The channel that a ReLU has silenced has scale 0.
"""

import sys
from pathlib import Path

import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))
import planted
from _haystack import ResidualCnn, random_tensor


class Quantised(nn.Module):
    """Round the features of ``(batch, channels, height, width)`` to 15 levels."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("kept", torch.tensor([1.0] * 5 + [0.0] + [1.0] * 2))

    def forward(self, features: Tensor) -> Tensor:
        features = features * self.kept.view(-1, 1, 1)
        scale = features.amax((0, 2, 3)) / planted.LEVELS
        return torch.ops.planted.quantise(features, scale)


def make() -> tuple[nn.Module, tuple[Tensor], None]:
    """Return module, example inputs (a batch of images) and no dynamic shapes."""
    images = random_tensor(2, 3, 8, 8, seed=1)
    return ResidualCnn(Quantised()).eval(), (images,), None
