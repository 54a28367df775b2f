"""Hide a ``cholesky_ex`` that checks for errors among sizes that depend on data.

Planted: planted.py lowers ``linalg.cholesky_ex`` with ``check_errors=True``, so what
eager reports in ``info`` is raised. Each expert gets as many rows as chose it.
"""

import sys
from pathlib import Path

import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from _haystack import Experts, random_tensor


class Whiten(nn.Module):
    """Scale each row by the root of its own 4 x 4 matrix, where there is one."""

    def forward(self, rows: Tensor) -> Tensor:
        root, info = torch.linalg.cholesky_ex(rows.unflatten(-1, (4, 4)))
        scale = torch.where(info == 0, root.diagonal(dim1=1, dim2=2).sum(-1), 1.0)
        return rows * scale.unsqueeze(-1)


def make() -> tuple[nn.Module, tuple[Tensor], None]:
    """Return module, example inputs (rows of features) and no dynamic shapes."""
    tokens = random_tensor(20, 16, seed=1)
    return Experts(Whiten()).eval(), (tokens,), None
