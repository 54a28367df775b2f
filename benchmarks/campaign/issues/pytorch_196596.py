"""addmm with beta=0 must ignore NaN in its first input."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x, a, b):
        return torch.addmm(x, a, b, beta=0)


def make():
    torch.manual_seed(0)
    return Model().eval(), (
        torch.full((4,), float("nan")),
        torch.randn(1, 4),
        torch.randn(4, 4),
    )
