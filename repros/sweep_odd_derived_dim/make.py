"""An upsampler, wrong only where the longer input, of ``3*t + 1``, is odd.

Planted: planted.py lowers ``cos`` so that it is off where its operand's length is
odd. The operand is the input of the derived dim; ``t`` is the other one's.
"""

import sys
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.export import Dim

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from _haystack import random_tensor


class Upsampler(nn.Module):
    """Add what ``(t, 8)`` says to the first of ``(3*t + 1, 8)`` positions."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.coarse = nn.Linear(8, 8)
        self.fine = nn.Linear(8, 8)
        self.norm = nn.LayerNorm(8)

    def forward(self, coarse: Tensor, fine: Tensor) -> Tensor:
        told = torch.tanh(self.coarse(coarse)).repeat_interleave(3, 0)
        waves = torch.cos(self.fine(fine)) * torch.sigmoid(fine)
        return self.norm(waves[1:] + told).relu() + waves[:1]


def make() -> tuple[nn.Module, tuple[Tensor, Tensor], tuple[dict[int, object], ...]]:
    """Return module, example inputs and two dynamic dims, one derived."""
    t = Dim("t", min=3, max=1000)
    inputs = random_tensor(5, 8, seed=1), random_tensor(16, 8, seed=2)
    return Upsampler().eval(), inputs, ({0: t}, {0: 3 * t + 1})
