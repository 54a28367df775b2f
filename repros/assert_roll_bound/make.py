"""Hide roll(flip(x)), whose planted lowering indexes past the end, in a transformer.

Planted: planted.py lowers the roll of a flipped tensor as one index and forgets to
wrap it. The lowering is ours, so no change of upstream's own ``roll`` mends it.
"""

import sys
from pathlib import Path

import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from _haystack import Transformer, random_ids


class ReversedShift(nn.Module):
    """Mix each position with a later one, read backwards."""

    def forward(self, hidden: Tensor) -> Tensor:
        backwards = torch.roll(torch.flip(hidden, [1]), 3, 1)
        return hidden + 0.1 * torch.tanh(backwards)


def make() -> tuple[nn.Module, tuple[Tensor], None]:
    """Return module, example inputs ((batch, seq) token ids) and no dynamic shapes."""
    ids = random_ids(2, 12, high=64, seed=1)
    return Transformer(ReversedShift()).eval(), (ids,), None
