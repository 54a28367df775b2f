"""ldexp of float16 by a float32 exponent stays float16; eager gives float32."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, m, e, b):
        return torch.ldexp(m, e), torch.ldexp(b, m)


def make():
    torch.manual_seed(0)
    return Model().eval(), (
        torch.randn(3, 4).half(),
        torch.randn(3, 4),
        torch.ones(3, 4, dtype=torch.bool),
    )
