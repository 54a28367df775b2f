"""Hide ``erfc``, whose planted C++ has a wrong constant, in a recommendation model.

Planted: planted.py replaces the C++ that Inductor prints for ``erfc``, so the result
is wrong by 999 whatever upstream prints. The inputs are a dict with a list in it;
the model has parameters and a buffer.
"""

import sys
from pathlib import Path

import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from _haystack import Dlrm, random_ids, random_tensor


class TailGate(nn.Module):
    """Fade out what lies in the upper tail of a normal distribution."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.linspace(0.5, 1.5, width))

    def forward(self, dense: Tensor) -> Tensor:
        return dense * torch.erfc(dense * self.scale)


def make() -> tuple[nn.Module, tuple[dict[str, Tensor | list[Tensor]]], None]:
    """Return module, example inputs (one nested batch) and no dynamic shapes."""
    batch = {
        "dense": random_tensor(8, 6, seed=1),
        "ids": [random_ids(8, 3, high=40, seed=2 + table) for table in range(12)],
    }
    return Dlrm(TailGate(16)).eval(), (batch,), None
