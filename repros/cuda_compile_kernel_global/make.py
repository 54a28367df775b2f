"""Hide a Triton kernel that does not compile in an image classifier.

Planted: the kernel of ``planted::leaky`` reads a global of its module that is no
``tl.constexpr``. Triton's interpreter takes that, its compiler does not.
"""

import sys
from pathlib import Path

import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))
import planted  # noqa: F401 - registers the operator
from _haystack import ResidualCnn, random_tensor


class Leaky(nn.Module):
    """Let a little of what is negative through."""

    def forward(self, features: Tensor) -> Tensor:
        return torch.ops.planted.leaky(features - 0.5) + 0.5


def make() -> tuple[nn.Module, tuple[Tensor], None]:
    """Return module, example inputs (a batch of images) and no dynamic shapes."""
    images = random_tensor(2, 3, 8, 8, seed=1)
    return ResidualCnn(Leaky()).eval(), (images,), None
