"""abs_ of an unfolded view, which overlaps itself, does not compile."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        y = torch.add(x, x)
        return y.unfold(1, 4, 2).abs_()


def make():
    torch.manual_seed(0)
    return Model().eval(), (torch.linspace(-3, 3, 7).reshape(1, 7),)
