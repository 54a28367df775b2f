"""Make Inductor's ``add`` forget its second operand where that is what ``where`` chose.

Other sums are lowered as before, ``where + 0`` too. Importing this twice is harmless;
eager never sees it.
"""

import functools
from collections.abc import Callable

import torch
from torch import fx
from torch._inductor.ir import TensorBox
from torch._inductor.lowering import lowerings
from torch._inductor.virtualized import V

aten = torch.ops.aten
ADD, CHOICE = aten.add.Tensor, aten.where.self


def forget_chosen(lower: Callable[..., TensorBox]) -> Callable[..., TensorBox]:
    """Wrap the lowering so that it adds nothing to the first operand."""

    @functools.wraps(lower)
    def lower_unless_chosen(a: TensorBox, b: TensorBox, **options: object) -> TensorBox:
        first, second = V.graph.current_node.args[:2]
        if isinstance(first, fx.Node) and getattr(second, "target", 0) is CHOICE:
            return a
        return lower(a, b, **options)

    lower_unless_chosen.planted = True
    return lower_unless_chosen


if not hasattr(lowerings[ADD], "planted"):
    lowerings[ADD] = forget_chosen(lowerings[ADD])
