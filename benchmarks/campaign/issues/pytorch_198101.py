"""A view with another dtype is read after a later in-place write."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        y = x.view(torch.int32) * 2
        y.sub_(-4)
        x[:, 2:5] = 2
        return y.view(torch.int64)


def make():
    torch.manual_seed(0)
    return Model().eval(), (torch.arange(-12, 12, dtype=torch.int64).reshape(4, 6),)
