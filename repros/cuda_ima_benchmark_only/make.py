"""Hide a kernel that only AOTInductor's benchmark leads astray in an LSTM.

Planted: the kernel of ``planted::pick`` takes ids that count from 1, and every real
input has such. While it compiles, AOTInductor times the kernel on what it makes up:
all ids are 0 then, and the row before the first is read.
"""

import sys
from pathlib import Path

import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))
import planted  # noqa: F401 - registers the operator
from _haystack import LstmTagger, random_ids


class Followed(nn.Module):
    """Blend each sentence's state with that of the one it answers."""

    def __init__(self) -> None:
        super().__init__()
        # Up to eight numbers would be written into the code.
        self.register_buffer("answers", 1 + torch.arange(12).roll(5))

    def forward(self, hidden: Tensor) -> Tensor:
        return 0.5 * hidden + torch.ops.planted.pick(hidden, self.answers)


def make() -> tuple[nn.Module, tuple[Tensor], None]:
    """Return module, example inputs ((batch, steps) word ids), no dynamic shapes."""
    ids = random_ids(12, 5, high=50, seed=1)
    return LstmTagger(Followed()).eval(), (ids,), None
