"""An operator that promises a gigabyte and returns sixteen elements.

Eager works on what is there. Compiled code reads what was promised, far beyond
the mapping: an illegal memory access.
"""

import torch
from torch import Tensor

PROMISED = 1 << 28


@torch.library.custom_op("cuda_test::few", mutates_args=())
def few(x: Tensor) -> Tensor:
    return x.flatten()[:16].clone()


@few.register_fake
def _(x: Tensor) -> Tensor:
    return x.new_empty(PROMISED)
