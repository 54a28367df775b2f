"""min and argmin of at least 16 int8 or uint8 values are wrong."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, u, s):
        return u.min(), u.argmin(), s.max(), s.argmax()


def make():
    torch.manual_seed(0)
    p = torch.tensor(
        [5, 1, 100, 3, 7, 8, 9, 13, 100, 120, 127, 2, 6, 4, 11, 12, 90, 80]
    )
    return Model().eval(), (p.to(torch.uint8), (-p).to(torch.int8))
