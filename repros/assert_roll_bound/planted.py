"""Make Inductor index out of bounds in ``aten.roll`` when its operand is a flip.

Inductor normally decomposes ``roll``. Here a roll along one dimension is kept and
lowered by us: correctly, except that on a flipped operand the source index is not
wrapped round. Inductor's own bounds check in the generated kernel then throws.
Importing this twice is harmless; eager never sees it.
"""

from collections.abc import Sequence
from types import NotImplementedType

import torch
from torch import Tensor
from torch._inductor import ir
from torch._inductor.decomposition import decompositions, select_decomp_table
from torch._inductor.lowering import lowerings, register_lowering
from torch._inductor.virtualized import OpsValue, V, ops
from torch.utils._sympy.functions import ModularIndexing

aten = torch.ops.aten
# Inductor decomposes ``flip`` to ``rev`` before it lowers.
FLIPS = (aten.flip.default, torch.ops.prims.rev.default)


def operand_is_flipped() -> bool:
    """Tell whether the operator being lowered reads the result of a flip."""
    return getattr(V.graph.current_node.args[0], "target", None) in FLIPS


def lower_roll(
    x: ir.TensorBox, shifts: Sequence[int], dims: Sequence[int]
) -> ir.TensorBox:
    """Read ``x`` shifted along one dimension."""
    size = x.get_size()
    dim = dims[0] % len(size)
    load, wraps = x.make_loader(), not operand_is_flipped()

    def read(index: Sequence[ir.Expr]) -> OpsValue:
        source = index[dim] + (-shifts[0]) % size[dim]
        if wraps:
            source = ModularIndexing(source, 1, size[dim])
        else:
            ops.check_bounds(source, size[dim], lower=True, upper=True)
        return load([*index[:dim], source, *index[dim + 1 :]])

    return ir.Pointwise.create(
        device=x.get_device(), dtype=x.get_dtype(), inner_fn=read, ranges=size
    )


def keep_roll(
    x: Tensor, shifts: Sequence[int], dims: Sequence[int] = ()
) -> Tensor | NotImplementedType:
    """Decompose as before, but leave what ``lower_roll`` handles alone."""
    if len(shifts) == len(dims) == 1 and x.ndim and x.numel():
        return NotImplemented
    return torch._refs.roll(x, shifts, dims)


if aten.roll.default not in lowerings:
    register_lowering(aten.roll.default, type_promotion_kind=None)(lower_roll)
    # The second is a cached copy of the first, with or without random operators.
    for table in (decompositions, select_decomp_table()):
        table[aten.roll.default] = keep_roll
