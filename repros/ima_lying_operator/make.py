"""Hide an operator that lies about its shape in a temporal convolution network.

Planted: planted.py registers ``planted::keep_loudest``, which returns a quarter of
the rows that its fake kernel promises. Inductor lets the next kernel write its
result over the operator's, for as many elements as were promised: past its end.
"""

import sys
from pathlib import Path

import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))
import planted  # noqa: F401 - registers the operator
from _haystack import TemporalConv, random_tensor


class LoudestOnly(nn.Module):
    """Add to every channel what the loudest ones have in common."""

    def forward(self, hidden: Tensor) -> Tensor:
        loudest = torch.ops.planted.keep_loudest(hidden)
        return hidden + torch.tanh(loudest * 0.5).mean(1, keepdim=True)


def make() -> tuple[nn.Module, tuple[Tensor], None]:
    """Return module, example inputs (a batch of signals) and no dynamic shapes."""
    signal = random_tensor(4, 4, 64, seed=1)
    return TemporalConv(LoudestOnly()).eval(), (signal,), None
