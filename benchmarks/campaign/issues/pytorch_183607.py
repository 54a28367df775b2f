"""isinf of a float16 product that overflows is False."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        y = x * x
        return y, y / x, torch.isinf(y)


def make():
    torch.manual_seed(0)
    return Model().eval(), (torch.full((40,), 300.0, dtype=torch.float16),)
