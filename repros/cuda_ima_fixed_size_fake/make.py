"""Hide a fake kernel that knows one batch only in a transformer.

Planted: the fake kernel of ``planted::whiten`` promises the batch that the program was
exported with, 4, though the batch is dynamic. What is compiled for its result reads 4
rows; of a smaller batch there are fewer.
"""

import sys
from pathlib import Path

import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))
import planted
from _haystack import Transformer, random_ids
from torch.export import Dim


class Whitened(nn.Module):
    """Add what the whitened states of the batch have in common."""

    def forward(self, hidden: Tensor) -> Tensor:
        whitened = torch.ops.planted.whiten(hidden)
        return hidden + torch.tanh(whitened).sum(0, keepdim=True)


def make() -> tuple[nn.Module, tuple[Tensor], tuple[dict[int, object]]]:
    """Return module, example inputs ((batch, seq) ids) and a dynamic batch."""
    ids = random_ids(planted.BATCH, 5, high=64, seed=1)
    batch = Dim("batch", min=2, max=64)
    return Transformer(Whitened(), blocks=3).eval(), (ids,), ({0: batch},)


def run_args() -> tuple[Tensor]:
    """Return the inputs that fail: a batch smaller than the example's."""
    return (random_ids(3, 5, high=64, seed=2),)
