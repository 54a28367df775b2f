"""A vocoder whose only dynamic dim is ``3*t + 1``, at which some ``t`` are misread.

Nothing is planted. The wrapper that AOTInductor writes gets ``t`` as
``(1.0/3.0)*size - 1.0/3.0`` and cuts off what is behind the point, which for some sizes
is one less than ``t``: rows at the end are never computed.
"""

import sys
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.export import Dim

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from _haystack import random_tensor


class Vocoder(nn.Module):
    """Predict the next of ``(3*t + 1, 8)`` frames, and how sure that is."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.norm = nn.LayerNorm(8)
        self.up = nn.Linear(8, 16)
        self.down = nn.Linear(16, 8)
        self.sure = nn.Linear(8, 1)

    def forward(self, frames: Tensor) -> tuple[Tensor, Tensor]:
        hidden = frames + self.down(nn.functional.gelu(self.up(self.norm(frames))))
        return torch.tanh(hidden) * 0.5, torch.sigmoid(self.sure(hidden))


def make() -> tuple[nn.Module, tuple[Tensor], tuple[dict[int, object]]]:
    """Return module, an example input, and one derived dim."""
    frames = 3 * Dim("t", min=5, max=1000) + 1
    return Vocoder().eval(), (random_tensor(19, 8, seed=1),), ({0: frames},)
