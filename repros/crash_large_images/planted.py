"""Have Inductor lower ``hypot`` of large images to a read far outside of its operand.

The kernel compiles and dies of SIGSEGV at its first element: nothing is mapped there.
"""

import torch
from torch._inductor import ir
from torch._inductor.lowering import lowerings
from torch._inductor.virtualized import ops

HYPOT = torch.ops.aten.hypot.default
ROWS, COLUMNS = 100, 200
FAR = 1 << 30
"""Rows between the operand and what is read."""

lower = lowerings[HYPOT]


def lower_and_read(x: ir.TensorBox, y: ir.TensorBox) -> ir.TensorBox:
    """Lower ``hypot`` as usual; for large images, add an out-of-bounds value."""
    result = lower(x, y)
    size = result.get_size()
    if len(size) < 2 or size[-2] < ROWS or size[-1] < COLUMNS:
        return result
    x.realize()
    load, computed = x.make_loader(), result.make_loader()

    def inner(index: list[object]) -> object:
        *rest, row, column = index
        far = load([*rest, row + FAR, column])
        return ops.add(computed(index), ops.mul(far, ops.constant(0.0, torch.float32)))

    return ir.Pointwise.create(
        device=x.get_device(), dtype=x.get_dtype(), inner_fn=inner, ranges=[*size]
    )


lowerings[HYPOT] = lower_and_read
