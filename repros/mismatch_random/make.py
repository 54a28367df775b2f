"""Hide ``log1p``, whose planted C++ has a wrong constant, among dropouts in an LSTM.

Planted: planted.py replaces the C++ that Inductor prints for ``log1p``. All results
are random, so they can be compared only with eager's own random numbers.
"""

import sys
from pathlib import Path

import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from _haystack import LstmTagger, random_ids


class NoisyGate(nn.Module):
    """Soften the state, and drop some of it at random."""

    def forward(self, hidden: Tensor) -> Tensor:
        noise = torch.rand_like(hidden)
        return torch.log1p(hidden.square()) * (noise < 0.9)


def make() -> tuple[nn.Module, tuple[Tensor], None]:
    """Return module, example inputs ((batch, steps) word ids) and no dynamic shapes."""
    ids = random_ids(2, 5, high=50, seed=1)
    return LstmTagger(NoisyGate(), dropout=0.2).train(), (ids,), None
