"""Hide a Triton kernel that forgets its mask in an LSTM.

Planted: the kernel of ``planted::softclip`` runs in whole blocks, whatever number of
elements there is. What lies behind them is read, and written over.
"""

import sys
from pathlib import Path

import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))
import planted  # noqa: F401 - registers the operator
from _haystack import LstmTagger, random_ids


class Clipped(nn.Module):
    """Bound the hidden state softly."""

    def forward(self, hidden: Tensor) -> Tensor:
        return 0.5 * hidden + torch.ops.planted.softclip(hidden)


def make() -> tuple[nn.Module, tuple[Tensor], None]:
    """Return module, example inputs ((batch, steps) word ids), no dynamic shapes."""
    ids = random_ids(3, 5, high=50, seed=1)
    return LstmTagger(Clipped()).eval(), (ids,), None
