"""Make Inductor's ``cumsum`` of integers one too large everywhere.

Other sums are lowered as before. Importing this twice is harmless; eager never sees it.
"""

import functools
from collections.abc import Callable

import torch
from torch._inductor.ir import TensorBox
from torch._inductor.lowering import lowerings

aten = torch.ops.aten


def count_from_two(lower: Callable[..., TensorBox]) -> Callable[..., TensorBox]:
    """Wrap a lowering so that it adds one to sums of integers."""

    @functools.wraps(lower)
    def lower_one_more(x: TensorBox, *args: object, **kwargs: object) -> TensorBox:
        total = lower(x, *args, **kwargs)
        if x.get_dtype().is_floating_point:
            return total
        return lowerings[aten.add.Tensor](total, 1)

    lower_one_more.planted = True
    return lower_one_more


if not hasattr(lowerings[aten.cumsum.default], "planted"):
    lowerings[aten.cumsum.default] = count_from_two(lowerings[aten.cumsum.default])
