"""Hide ``hypot``, whose planted C++ calls an undeclared function, in a transformer.

Planted: planted.py replaces the C++ that Inductor prints for ``hypot`` by a call of
a name that no header declares, so g++ rejects it whatever upstream prints.
"""

import sys
from pathlib import Path

import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from _haystack import Transformer, random_ids


class PairedMagnitude(nn.Module):
    """Scale channels by the magnitude of pairs of them, as of complex numbers."""

    def forward(self, hidden: Tensor) -> Tensor:
        real, imaginary = hidden.chunk(2, -1)
        magnitude = torch.hypot(real, imaginary)
        return hidden * torch.sigmoid(torch.cat([magnitude, magnitude], -1))


def make() -> tuple[nn.Module, tuple[Tensor], None]:
    """Return module, example inputs ((batch, seq) token ids) and no dynamic shapes."""
    ids = random_ids(2, 12, high=64, seed=1)
    return Transformer(PairedMagnitude()).eval(), (ids,), None
