"""Give a recommendation model an id that one of its tables does not have.

No bug of the compiler: on a GPU this is the device-side assertion that users see, and
neither which table nor which id is in its text. Eager refuses the id as well.
"""

import sys
from pathlib import Path

import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from _haystack import Dlrm, random_ids, random_tensor

BATCH, TABLES, ROWS = 4, 18, 40


class Gate(nn.Module):
    """Scale each feature by what it is itself."""

    def forward(self, dense: Tensor) -> Tensor:
        return dense * torch.sigmoid(dense)


def features(seed: int) -> dict[str, Tensor | list[Tensor]]:
    """Draw one batch of features."""
    ids = [random_ids(BATCH, 3, high=ROWS, seed=seed + i) for i in range(TABLES)]
    return {"dense": random_tensor(BATCH, 6, seed=seed), "ids": ids}


def make() -> tuple[nn.Module, tuple[object], None]:
    """Return module, example inputs (one batch of features) and no dynamic shapes."""
    return Dlrm(Gate(), tables=TABLES).eval(), (features(1),), None


def run_args() -> tuple[object]:
    """Return the inputs that fail: the seventh table has no row of that number."""
    batch = features(50)
    batch["ids"][6][2, 1] = ROWS
    return (batch,)
