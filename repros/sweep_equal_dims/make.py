"""A cross attention, wrong only where source and target are equally long.

Planted: planted.py lowers ``sigmoid`` of a matrix so that a square one is off.
"""

import sys
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.export import Dim

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from _haystack import random_tensor


class Cross(nn.Module):
    """Gated attention of ``(target, 16)`` to ``(source, 16)``."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.query = nn.Linear(16, 16)
        self.key = nn.Linear(16, 16)
        self.value = nn.Linear(16, 16)
        self.norm = nn.LayerNorm(16)

    def forward(self, target: Tensor, source: Tensor) -> Tensor:
        query, key = self.query(self.norm(target)), self.key(self.norm(source))
        scores = torch.sigmoid(query @ key.t() / 4)
        weights = scores / (scores.sum(1, keepdim=True) + 1)
        return target + torch.tanh(weights @ self.value(source).relu())


def make() -> tuple[nn.Module, tuple[Tensor, Tensor], tuple[dict[int, object], ...]]:
    """Return module, example inputs and two dynamic lengths."""
    target, source = Dim("target", min=2, max=1024), Dim("source", min=2, max=1024)
    inputs = random_tensor(7, 16, seed=1), random_tensor(11, 16, seed=2)
    return Cross().eval(), inputs, ({0: target}, {0: source})
