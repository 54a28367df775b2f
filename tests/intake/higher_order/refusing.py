"""Planted: Inductor lowers none of these operators."""

import torch
from torch._inductor.lowering import lowerings


def refuse(*args: object, **kwargs: object) -> None:
    raise AssertionError("planted: this operator is not lowered")


@torch.library.custom_op("planted::increase", mutates_args=("x",))
def increase(x: torch.Tensor) -> None:
    x.add_(1)


for name in ("cond", "flex_attention", "invoke_subgraph", "while_loop"):
    lowerings[getattr(torch.ops.higher_order, name)] = refuse
lowerings[torch.ops.planted.increase.default] = refuse
lowerings[torch.ops.aten.cumprod.default] = refuse
lowerings[torch.ops.aten.cumsum.default] = refuse
