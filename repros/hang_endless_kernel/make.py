"""Hide a ``fmod`` whose planted kernel never ends in a temporal convolution network.

Planted: planted.py replaces the C++ that Inductor prints for ``fmod`` by a loop
without an end, so the compiled program never returns.
"""

import sys
from pathlib import Path

import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from _haystack import TemporalConv, random_tensor


class Wrapped(nn.Module):
    """Wrap the features into a short interval and put them beside themselves."""

    def forward(self, hidden: Tensor) -> Tensor:
        return 0.5 * hidden + torch.fmod(3 * hidden, 0.75).cos()


def make() -> tuple[nn.Module, tuple[Tensor], None]:
    """Return module, example inputs (a batch of signals) and no dynamic shapes."""
    signal = random_tensor(2, 4, 40, seed=1)
    return TemporalConv(Wrapped(), layers=5).eval(), (signal,), None
