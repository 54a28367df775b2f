"""nearest interpolation resamples a dim whose size the scale does not change."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return nn.functional.interpolate(x, scale_factor=(1.3, 1.5), mode="nearest")


def make():
    torch.manual_seed(0)
    return Model().eval(), (torch.arange(12.0).reshape(1, 1, 3, 4),)
