"""Hide an ``expm1`` that crashes only in a branch of ``torch.cond``, in a network.

Planted: planted.py makes the kernel of an ``expm1`` fault if it belongs to a branch.
The branches capture a parameter; a healthy ``cond``, whose branches capture a feature
map, and an ``expm1`` outside of any are beside it.
"""

import sys
from pathlib import Path

import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from _haystack import ResidualCnn, random_tensor


class Switch(nn.Module):
    """Choose by the features how they are bent, and how they are limited."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.linspace(0.1, 0.5, channels).view(-1, 1, 1))

    def forward(self, features: Tensor) -> Tensor:
        calm = features.mean() < 100
        bent = torch.cond(calm, torch.expm1, lambda x: x * self.scale, (features,))
        shifted = features - 1
        limited = torch.cond(
            bent.min() > 0, lambda x: x + shifted, lambda x: x.tanh(), (bent,)
        )
        return torch.expm1(0.1 * limited) + limited


def make() -> tuple[nn.Module, tuple[Tensor], None]:
    """Return module, example inputs (one batch of images) and no dynamic shapes."""
    images = random_tensor(2, 3, 12, 12, seed=1)
    return ResidualCnn(Switch(8), blocks=4).eval(), (images,), None
