"""Hide a Triton kernel that needs too much shared memory in an encoder-decoder.

Planted: the kernel of ``planted::project`` multiplies tiles of 128 x 256 floats: 256
KiB of shared memory, where a block may have 227.
"""

import sys
from pathlib import Path

import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))
import planted  # noqa: F401 - registers the operator
from _haystack import EncoderDecoder, random_tensor


class Projected(nn.Module):
    """Mix the hidden state's features."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("basis", random_tensor(16, 16, seed=3) / 4)

    def forward(self, hidden: Tensor, memory: Tensor) -> Tensor:
        mixed = torch.ops.planted.project(hidden.flatten(0, 1), self.basis)
        return hidden + mixed.view_as(hidden) * memory.mean()


def make() -> tuple[nn.Module, tuple[Tensor, Tensor], None]:
    """Return module, example inputs (source and target), no dynamic shapes."""
    source, target = (random_tensor(2, 4, 16, seed=i) for i in (1, 2))
    return EncoderDecoder(Projected()).eval(), (source, target), None
