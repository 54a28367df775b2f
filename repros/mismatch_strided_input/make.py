"""Hide an ``asinh`` that takes a gapped input for a dense one before convolutions.

Planted: planted.py lowers the ``asinh`` of a tensor with gaps between its rows as if
there were none. The signals are views of longer ones; a dense copy passes.
"""

import sys
from pathlib import Path

import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from _haystack import TemporalConv, random_tensor


class Companded(nn.Module):
    """Compress the loudness of signals and filter them."""

    def __init__(self) -> None:
        super().__init__()
        self.network = TemporalConv(nn.Identity())

    def forward(self, signal: Tensor) -> Tensor:
        return self.network(torch.asinh(5 * signal) + torch.asinh(signal))


def make() -> tuple[nn.Module, tuple[Tensor], None]:
    """Return module, example inputs (the starts of signals) and no dynamic shapes."""
    signal = random_tensor(2, 4, 80, seed=1)
    return Companded().eval(), (signal[:, :, :48],), None
