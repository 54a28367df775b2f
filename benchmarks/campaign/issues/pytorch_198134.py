"""acosh of float64 values above 1.34e154 is inf."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return torch.acosh(x)


def make():
    torch.manual_seed(0)
    return Model().eval(), (
        torch.tensor([1e200, 2e154, 1e308, 3.0] * 4, dtype=torch.float64),
    )
