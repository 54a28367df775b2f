"""A hashing encoder that crashes at 1,023 and 1,025 rows of up to 4,096.

Planted: planted.py lowers ``copysign`` so that it reads far outside next to a block
of 1,024, as a wrong tail does.
"""

import sys
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.export import Dim

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from _haystack import random_ids, random_tensor


class Encoder(nn.Module):
    """Look ids up and compress them with their weights, ``(rows,)`` each."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table = nn.Embedding(50, 8)
        self.hidden = nn.Linear(8, 12)
        self.head = nn.Linear(12, 3)

    def forward(self, ids: Tensor, weights: Tensor) -> Tensor:
        rows = self.table(ids) * weights.unsqueeze(1)
        centred = rows - rows.mean(0, keepdim=True)
        compressed = torch.copysign(centred.abs().add(1e-3).sqrt(), centred)
        return self.head(torch.relu(self.hidden(compressed))).softmax(-1)


def make() -> tuple[nn.Module, tuple[Tensor, Tensor], tuple[dict[int, object], ...]]:
    """Return module, example inputs and one dynamic number of rows."""
    rows = Dim("rows", min=1, max=4096)
    inputs = random_ids(9, high=50, seed=1), random_tensor(9, seed=2)
    return Encoder().eval(), inputs, ({0: rows}, {0: rows})
