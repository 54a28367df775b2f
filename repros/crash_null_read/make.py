"""Hide ``copysign``, whose planted C++ reads from address 8, in a residual network.

Planted: planted.py replaces the C++ that Inductor prints for ``copysign``, so the
generated kernel faults whatever upstream prints for it.
"""

import sys
from pathlib import Path

import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from _haystack import ResidualCnn, random_tensor


class SignedRoot(nn.Module):
    """Compress large features but keep their sign."""

    def forward(self, features: Tensor) -> Tensor:
        centred = features - features.mean((2, 3), keepdim=True)
        return torch.copysign(centred.abs().add(1e-3).sqrt(), centred)


def make() -> tuple[nn.Module, tuple[Tensor], None]:
    """Return module, example inputs (one batch of images) and no dynamic shapes."""
    images = random_tensor(2, 3, 12, 12, seed=1)
    return ResidualCnn(SignedRoot()).eval(), (images,), None
