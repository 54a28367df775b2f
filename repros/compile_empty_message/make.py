"""Hide the ``sgn`` of complex numbers, which does not compile, in a transformer.

Not planted: Inductor writes zero as a complex scalar, and its C++ wrapper asserts
that scalars are real. The AssertionError has no message before torch 2.14.
"""

import sys
from pathlib import Path

import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from _haystack import Transformer, random_ids


class KeepPhase(nn.Module):
    """Take pairs of channels for complex numbers and keep their angles only."""

    def forward(self, hidden: Tensor) -> Tensor:
        pairs = torch.view_as_complex(hidden.unflatten(-1, (-1, 2)))
        return hidden + torch.view_as_real(torch.sgn(pairs)).flatten(-2)


def make() -> tuple[nn.Module, tuple[Tensor], None]:
    """Return module, example inputs ((batch, seq) token ids) and no dynamic shapes."""
    ids = random_ids(2, 12, high=64, seed=1)
    return Transformer(KeepPhase()).eval(), (ids,), None
