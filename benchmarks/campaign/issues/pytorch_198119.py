"""The gradient of avg_pool2d with ceil_mode divides by the full kernel."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, g, x):
        return torch.ops.aten.avg_pool2d_backward(
            g, x, [3, 3], [2, 2], [0, 0], True, True, None
        )


def make():
    torch.manual_seed(0)
    return Model().eval(), (torch.ones(1, 2, 4, 4), torch.randn(1, 2, 8, 8))
