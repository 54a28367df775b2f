"""Make Inductor lower the transposition of square matrices as no operation.

Others are lowered as before. Importing this twice is harmless; eager never sees it.
"""

import functools
from collections.abc import Callable, Sequence

import torch
from torch._inductor import ir
from torch._inductor.lowering import lowerings

# Inductor decomposes ``transpose`` to ``permute`` before it lowers.
PERMUTE = torch.ops.aten.permute.default


def skip_squares(lower: Callable[..., ir.TensorBox]) -> Callable[..., ir.TensorBox]:
    """Wrap a lowering so that it hands square matrices back as they are."""

    @functools.wraps(lower)
    def lower_unless_square(x: ir.TensorBox, dims: Sequence[int]) -> ir.TensorBox:
        size = x.get_size()
        if [size[dim] for dim in dims] == list(size):
            return x
        return lower(x, dims)

    lower_unless_square.planted = True
    return lower_unless_square


if not hasattr(lowerings[PERMUTE], "planted"):
    lowerings[PERMUTE] = skip_squares(lowerings[PERMUTE])
