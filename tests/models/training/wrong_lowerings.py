"""Wrong lowerings of operators in backward graphs."""

from __future__ import annotations

from typing import Any

import torch
from torch._inductor.lowering import lowerings

aten = torch.ops.aten
average = lowerings[aten.avg_pool2d_backward.default]


def put_without_accumulation(x: Any, mask: Any, indices: Any, values: Any) -> Any:
    """Keep one of the gradients of a token that occurs twice."""
    return lowerings[aten.index_put.default](x, indices, values, False)


def compare_strictly(a: Any, b: Any) -> Any:
    """Let gradients pass where relu has made zeros."""
    return lowerings[aten.lt.Scalar](a, b)


def average_undivided(*args: Any) -> Any:
    """Spread a gradient over the window without dividing it by the window's size."""
    return average(*args[:7], 1)


WRONG: dict[Any, Any] = {
    aten._unsafe_masked_index_put_accumulate.default: put_without_accumulation,
    aten.le.Scalar: compare_strictly,
    aten.avg_pool2d_backward.default: average_undivided,
}


def install(operator: Any) -> None:
    lowerings[operator] = WRONG[operator]
