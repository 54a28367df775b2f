"""Programs to plant failures in: each planted operator is there once."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Haystack(nn.Module):
    """Two inputs, two results, weights, a residual and a split: 28 operators."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Linear(6, 8)
        self.norm = nn.LayerNorm(8)
        self.mix = nn.Parameter(torch.randn(8, 8))
        self.second = nn.Linear(8, 3)

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        h = self.norm(self.first(x))
        h = h + torch.sin(h)
        g = torch.sigmoid(y) * h
        r = F.relu(torch.erf(g) - g.mean(1, keepdim=True))
        t = torch.atan(torch.softmax(r, -1))
        c = torch.cat([t @ self.mix, h], 1)
        left, right = c.chunk(2, 1)
        u = torch.tanh(left) + torch.exp(-right.abs())
        v = torch.cosh(u).clamp(max=5.0)
        return self.second(v).square().sum(1), torch.asinh(torch.cumsum(c, 1))


def save_haystack(path: Path) -> Path:
    args = (torch.randn(4, 6), torch.randn(4, 8))
    torch.export.save(torch.export.export(Haystack().eval(), args), path)
    return path
