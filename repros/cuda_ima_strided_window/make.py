"""Hide windows that reach beyond their tensor in a temporal convolution network.

Planted: planted.py lowers ``as_strided`` with its start one row too far. What reads
the last window reads past the end.
"""

import sys
from pathlib import Path

from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))
from _haystack import TemporalConv, random_tensor

WIDTH = 5


class MovingMean(nn.Module):
    """Replace each channel of ``(batch, 8, time)`` by the mean over windows of it."""

    def forward(self, hidden: Tensor) -> Tensor:
        padded = nn.functional.pad(hidden, (WIDTH - 1, 0)).contiguous()
        strides = (*padded.stride(), 1)
        windows = padded.as_strided((*hidden.shape, WIDTH), strides, 0)
        return windows.mean(-1)


def make() -> tuple[nn.Module, tuple[Tensor], None]:
    """Return module, example inputs (a batch of signals) and no dynamic shapes."""
    signal = random_tensor(2, 4, 24, seed=1)
    return TemporalConv(MovingMean()).eval(), (signal,), None
