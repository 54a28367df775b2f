"""A signal filter that asserts from 1,025 samples up.

Planted: planted.py lowers ``flip`` with a bounds check for 1,024 positions, as if a
block were all there could be.
"""

import sys
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.export import Dim

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from _haystack import random_tensor


class BothWays(nn.Module):
    """Filter ``(channels, samples)`` forwards and backwards."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Conv1d(3, 8, 5, padding=2)
        self.second = nn.Conv1d(8, 8, 5, padding=2)
        self.head = nn.Linear(8, 4)

    def forward(self, signal: Tensor) -> Tensor:
        forwards = torch.relu(self.first(signal.unsqueeze(0)))
        backwards = torch.flip(torch.sigmoid(forwards), [2])
        mixed = torch.relu(self.second(backwards)) * forwards
        scores = self.head(mixed.mean(2) - mixed.amax(2))
        return torch.log_softmax(scores.squeeze(0), -1)


def make() -> tuple[nn.Module, tuple[Tensor], tuple[dict[int, object], ...]]:
    """Return module, example inputs and a dynamic number of samples, unbounded."""
    samples = random_tensor(3, 40, seed=1)
    return BothWays().eval(), (samples,), ({1: Dim.DYNAMIC},)
