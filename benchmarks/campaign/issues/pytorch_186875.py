"""fmod by a Python float does not round it to bfloat16."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x, h):
        return torch.fmod(x, 1.7), torch.remainder(x, 1.7), torch.remainder(h, 3.14)


def make():
    torch.manual_seed(0)
    return Model().eval(), (
        torch.tensor([1.703125, -1.703125, 3.40625, -3.40625], dtype=torch.bfloat16),
        torch.tensor([3.140625, -3.140625, 6.28125, 1.0], dtype=torch.float16),
    )
