"""Hide a transposition that does nothing among outputs that share memory.

Planted: planted.py lowers the transposition of a square matrix as the matrix itself.
The recommendation model returns one tensor twice, an input, and views of others.
"""

import sys
from pathlib import Path

from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from _haystack import Dlrm, random_ids, random_tensor


class Explained(nn.Module):
    """Return with the score what it came from."""

    def __init__(self) -> None:
        super().__init__()
        self.model = Dlrm(nn.Tanh(), tables=10)

    def forward(self, batch: dict[str, Tensor | list[Tensor]]) -> dict[str, object]:
        score, dense = self.model(batch), batch["dense"]
        apart = dense.unsqueeze(2) - dense.unsqueeze(1)
        return {
            "score": score,
            "column": (score, score.unsqueeze(-1)),
            "dense": dense,
            "apart": [apart, apart.transpose(1, 2), apart[:, 0]],
        }


def make() -> tuple[nn.Module, tuple[dict[str, Tensor | list[Tensor]]], None]:
    """Return module, example inputs (one nested batch) and no dynamic shapes."""
    batch = {
        "dense": random_tensor(8, 6, seed=1),
        "ids": [random_ids(8, 3, high=40, seed=2 + table) for table in range(10)],
    }
    return Explained().eval(), (batch,), None
