"""Make the lowering of ``aten.cumsum`` raise when its operand is a padded tensor.

Other sums are lowered as before. Importing this twice is harmless; eager never
sees it.
"""

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import torch
from torch._inductor.lowering import lowerings
from torch._inductor.virtualized import V

P = ParamSpec("P")
R = TypeVar("R")

aten = torch.ops.aten
# Inductor decomposes ``pad`` to ``constant_pad_nd`` before it lowers.
PADS = (aten.pad.default, aten.constant_pad_nd.default)


def refuse_padded(lower: Callable[P, R]) -> Callable[P, R]:
    """Wrap a lowering so that it raises on the result of a pad."""

    @functools.wraps(lower)
    def lower_unless_padded(*args: P.args, **kwargs: P.kwargs) -> R:
        operand = V.graph.current_node.args[0]
        if getattr(operand, "target", None) in PADS:
            raise NotImplementedError("planted: cannot scan a padded layout")
        return lower(*args, **kwargs)

    lower_unless_padded.planted = True
    return lower_unless_padded


if not hasattr(lowerings[aten.cumsum.default], "planted"):
    lowerings[aten.cumsum.default] = refuse_padded(lowerings[aten.cumsum.default])
