"""Hide ``lgamma``, whose planted check fails in three runs of ten, in a transformer.

Planted: planted.py replaces the C++ that Inductor prints for ``lgamma``, so the
generated kernel now and then refuses whatever upstream prints for it.
"""

import sys
from pathlib import Path

import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from _haystack import Transformer, random_ids


class LogGammaGain(nn.Module):
    """Scale a sequence by gains made of the log-gamma of its mean magnitude."""

    def __init__(self) -> None:
        super().__init__()
        self.gains = nn.Linear(1, 32)

    def forward(self, hidden: Tensor) -> Tensor:
        magnitude = hidden.abs().mean((1, 2), keepdim=True)
        return hidden * self.gains(torch.lgamma(magnitude + 3))


def make() -> tuple[nn.Module, tuple[Tensor], None]:
    """Return module, example inputs (a sequence of token ids) and no dynamic shapes."""
    ids = random_ids(1, 24, high=64, seed=1)
    return Transformer(LogGammaGain(), blocks=2).eval(), (ids,), None
