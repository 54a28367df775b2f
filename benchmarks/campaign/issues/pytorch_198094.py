"""slice_scatter before an in-place zero_ of its input returns zeros."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x, s):
        y = torch.slice_scatter(x, s, 0, 1, 3)
        x.zero_()
        return y


def make():
    torch.manual_seed(0)
    return Model().eval(), (torch.randn(4, 5), torch.randn(2, 5))
