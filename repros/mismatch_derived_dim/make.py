"""Hide a ``slice_scatter`` with a fixed end between dims ``t`` and ``2*t + 1``.

Planted: planted.py lowers ``slice_scatter`` so that it stops where the example's
slice ended. The decoder's length is derived from the encoder's; the example passes
and the failing inputs are longer.
"""

import sys
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.export import Dim

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from _haystack import EncoderDecoder, random_tensor


class CopyMemory(nn.Module):
    """Overwrite the first positions by what was read: ``t`` of ``2*t + 1``."""

    def forward(self, hidden: Tensor, memory: Tensor) -> Tensor:
        return torch.slice_scatter(hidden, memory.tanh(), 1, 0, memory.shape[1])


def inputs(length: int) -> tuple[Tensor, Tensor]:
    """Draw a source of this length and a target of the length that goes with it."""
    source = random_tensor(2, length, 16, seed=1)
    return source, random_tensor(2, 2 * length + 1, 16, seed=2)


def make() -> tuple[nn.Module, tuple[Tensor, Tensor], tuple[dict[int, object], ...]]:
    """Return module, example inputs and two dynamic dims, one derived."""
    t = Dim("t", min=2, max=32)
    return EncoderDecoder(CopyMemory()).eval(), inputs(5), ({1: t}, {1: 2 * t + 1})


def run_args() -> tuple[Tensor, Tensor]:
    """Return the inputs that fail: longer ones."""
    return inputs(9)
