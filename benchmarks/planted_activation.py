"""Planted: Inductor computes sin instead of atan, and refuses to lower log2."""

from typing import Any

import torch
from torch._inductor.decomposition import decompositions
from torch._inductor.lowering import lowerings

aten = torch.ops.aten


def refuse(*_arguments: Any) -> Any:
    raise NotImplementedError("planted: no rule for log2")


decompositions.pop(aten.log2.default, None)
lowerings[aten.atan.default] = lowerings[aten.sin.default]
lowerings[aten.log2.default] = refuse
