"""Hide an operator that lies about its shape in a recommendation model.

Planted: planted.py registers ``planted::hash_features``, which returns half of the
columns that its fake kernel promises. The next kernel that Inductor generates reads
as many elements as were promised: past the end of the operator's result.
"""

import sys
from pathlib import Path

import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))
import planted  # noqa: F401 - registers the operator
from _haystack import Dlrm, random_ids, random_tensor

BATCH = 6


class HashedFeatures(nn.Module):
    """Add what the hashed features have in common to each feature."""

    def forward(self, dense: Tensor) -> Tensor:
        hashed = torch.ops.planted.hash_features(dense)
        return dense + torch.tanh(hashed * 0.5).mean(1, keepdim=True)


def make() -> tuple[nn.Module, tuple[object], None]:
    """Return module, example inputs (one batch of features) and no dynamic shapes."""
    ids = [random_ids(BATCH, 3, high=40, seed=10 + i) for i in range(16)]
    batch = {"dense": random_tensor(BATCH, 6, seed=1), "ids": ids}
    return Dlrm(HashedFeatures(), tables=16).eval(), (batch,), None
