"""Make Inductor lose writes into tensors of one element.

The program reads what it has written, so the first call is right. Other tensors are
written as before. Importing this twice is harmless; eager never sees it.
"""

import functools
from collections.abc import Callable

import torch
from torch._inductor import ir
from torch._inductor.lowering import lowerings

# The end of the graph copies the new value of a buffer into the buffer.
COPY = torch.ops.aten.copy_.default


def lose_scalars(lower: Callable[..., ir.TensorBox]) -> Callable[..., ir.TensorBox]:
    """Wrap a lowering so that it returns tensors of one element unchanged."""

    @functools.wraps(lower)
    def lower_unless_one(
        to: ir.TensorBox, source: ir.TensorBox, non_blocking: bool = False
    ) -> ir.TensorBox:
        if to.get_size() == [1]:
            return to
        return lower(to, source, non_blocking)

    lower_unless_one.planted = True
    return lower_unless_one


if not hasattr(lowerings[COPY], "planted"):
    lowerings[COPY] = lose_scalars(lowerings[COPY])
