"""A pooled tagger, wrong only for batches of 0 and 1.

Planted: planted.py lowers ``sum`` so that a sum over fewer than two rows is off by
one. The program is exported for any batch from 0 up.
"""

import sys
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.export import Dim

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from _haystack import random_tensor


class Pooled(nn.Module):
    """Score rows, add the scores of all of them up, ``(rows, 12)`` to ``(5,)``."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.hidden = nn.Linear(12, 16)
        self.norm = nn.LayerNorm(16)
        self.scores = nn.Linear(16, 5)

    def forward(self, rows: Tensor) -> Tensor:
        hidden = nn.functional.gelu(self.norm(self.hidden(rows)))
        gated = hidden * torch.sigmoid(hidden.roll(1, 1))
        total = self.scores(gated).exp().sum(0)
        return torch.tanh(total / 8) + 0.5


def make() -> tuple[nn.Module, tuple[Tensor], tuple[dict[int, object], ...]]:
    """Return module, example inputs and a dynamic number of rows."""
    return Pooled().eval(), (random_tensor(6, 12, seed=1),), ({0: Dim("rows")},)
