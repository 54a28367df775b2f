"""minimum of -0.0 and 0.0 loses the sign, so its reciprocal is +inf instead of -inf"""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x, y):
        return torch.reciprocal(torch.minimum(x, y))


def make():
    torch.manual_seed(0)
    return Model().eval(), (torch.tensor([-0.0]), torch.tensor([0.0]))
