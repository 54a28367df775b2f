"""Hide a ``logcumsumexp`` that asks for a buffer of absurd size in a transformer.

Planted: planted.py lowers ``logcumsumexp`` through a buffer larger than any address
space, so the allocator refuses, however much memory there is.
"""

import sys
from pathlib import Path

import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from _haystack import Transformer, random_ids


class RunningSoftness(nn.Module):
    """Add a soft running maximum over the positions so far."""

    def forward(self, hidden: Tensor) -> Tensor:
        return hidden + 0.1 * torch.logcumsumexp(hidden, 1)


def make() -> tuple[nn.Module, tuple[Tensor], None]:
    """Return module, example inputs ((batch, seq) token ids) and no dynamic shapes."""
    ids = random_ids(2, 12, high=64, seed=1)
    return Transformer(RunningSoftness(), blocks=3).eval(), (ids,), None
