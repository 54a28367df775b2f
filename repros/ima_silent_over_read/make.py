"""Hide an operator that lies about its shape, and whose lie is only read by.

Planted: planted.py registers ``planted::drop_padding``, which returns half of the
positions that its fake kernel promises. A sum over them reads past the end of
the result. Nothing is written there, and the heap goes on behind it: the program
ends well, with wrong values that differ from run to run.
"""

import sys
from pathlib import Path

import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))
import planted  # noqa: F401 - registers the operator
from _haystack import Transformer, random_ids


class Summary(nn.Module):
    """Add to every position what the real ones have in common."""

    def forward(self, hidden: Tensor) -> Tensor:
        real = torch.ops.planted.drop_padding(hidden)
        return hidden + real.mean(1, keepdim=True)


def make() -> tuple[nn.Module, tuple[Tensor], None]:
    """Return module, example inputs (a batch of token ids) and no dynamic shapes."""
    ids = random_ids(2, 16, high=64, seed=1)
    return Transformer(Summary(), blocks=2).eval(), (ids,), None
