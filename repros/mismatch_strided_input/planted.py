"""Make Inductor read a tensor with gaps as if it were dense in ``asinh``.

It reads within the tensor's memory, but the wrong elements. Others are lowered as
before. Importing this twice is harmless; eager never sees it.
"""

import functools
from collections.abc import Callable

import torch
from torch._inductor import ir
from torch._inductor.lowering import lowerings
from torch._inductor.virtualized import V

aten = torch.ops.aten


def forget_strides(lower: Callable[..., ir.TensorBox]) -> Callable[..., ir.TensorBox]:
    """Wrap a lowering so that it takes its operand for contiguous."""

    @functools.wraps(lower)
    def lower_as_dense(x: ir.TensorBox) -> ir.TensorBox:
        operand = V.graph.current_node.args[0].meta["val"]
        if not operand.is_contiguous():
            size = list(operand.shape)
            dense = torch.empty(size, device="meta").stride()
            x = lowerings[aten.as_strided.default](x, size, list(dense))
        return lower(x)

    lower_as_dense.planted = True
    return lower_as_dense


if not hasattr(lowerings[aten.asinh.default], "planted"):
    lowerings[aten.asinh.default] = forget_strides(lowerings[aten.asinh.default])
