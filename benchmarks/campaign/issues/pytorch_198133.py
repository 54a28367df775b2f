"""erfinv of float64 values near 1 is inexact."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x, y):
        return torch.erfinv(x), torch.erfinv(y)


def make():
    torch.manual_seed(0)
    return Model().eval(), (
        torch.tensor([0.99, 0.9999, 0.999999, 0.9999999, 0.99999994]),
        torch.tensor(
            [0.999, 0.999999999, 1 - 1e-12, 1 - 1e-14, 1 - 1e-16], dtype=torch.float64
        ),
    )
