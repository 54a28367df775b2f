"""a sum of complex tensors, one of them broadcast, does not compile."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return x + torch.ones(2, 1, dtype=torch.complex64)


def make():
    torch.manual_seed(0)
    return Model().eval(), (torch.full((2, 2), 1.0, dtype=torch.complex64),)
