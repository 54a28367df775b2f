"""Hide an operator that returns a view off the usual alignment in a transformer.

Planted: ``planted::drop_first`` returns a view that begins 4 bytes into its memory;
its fake kernel promises a tensor of its own. Kernels that read it are compiled for
an address divisible by 16.
"""

import sys
from pathlib import Path

import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))
import planted  # noqa: F401 - registers the operator
from _haystack import Transformer, random_ids


class Shifted(nn.Module):
    """Add the states, taken one element later, to themselves."""

    def forward(self, hidden: Tensor) -> Tensor:
        later = torch.ops.planted.drop_first(
            nn.functional.pad(hidden.flatten(), (0, 1))
        )
        return hidden + torch.tanh(later).view_as(hidden) * 0.1


def make() -> tuple[nn.Module, tuple[Tensor], None]:
    """Return module, example inputs ((batch, seq) ids) and no dynamic shapes."""
    ids = random_ids(2, 4, high=64, seed=1)
    return Transformer(Shifted(), blocks=2).eval(), (ids,), None
