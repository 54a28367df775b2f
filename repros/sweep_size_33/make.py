"""An attention layer, not finite only where there are 33 positions.

Planted: planted.py lowers ``tanh`` so that it yields NaN where its operand's second
dim is 33, one beyond a block of 32. Batch and length are both dynamic.
"""

import sys
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.export import Dim

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from _haystack import random_tensor


class Attention(nn.Module):
    """One head over ``(batch, length, 16)``, with a gate behind it."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.norm = nn.LayerNorm(16)
        self.qkv = nn.Linear(16, 48)
        self.out = nn.Linear(16, 16)

    def forward(self, hidden: Tensor) -> Tensor:
        q, k, v = self.qkv(self.norm(hidden)).chunk(3, -1)
        weights = torch.softmax(q @ k.transpose(1, 2) / 4, -1)
        read = self.out(weights @ v)
        return hidden + torch.tanh(read) * torch.sigmoid(hidden)


def make() -> tuple[nn.Module, tuple[Tensor], tuple[dict[int, object], ...]]:
    """Return module, example inputs and dynamic batch and length."""
    batch, length = Dim("batch", min=1, max=64), Dim("length", min=2, max=512)
    dims = {0: batch, 1: length}
    return Attention().eval(), (random_tensor(2, 10, 16, seed=1),), (dims,)
