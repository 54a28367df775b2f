"""prod of float32 values with dtype=bool does not compile"""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return torch.prod(x, dtype=torch.bool)


def make():
    torch.manual_seed(0)
    return Model().eval(), (torch.randn(3, 4),)
