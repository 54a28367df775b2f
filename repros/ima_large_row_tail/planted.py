"""Have Inductor lower ``erfinv`` of long rows so that it reads past their ends."""

import torch
from torch._inductor import ir
from torch._inductor.lowering import lowerings
from torch._inductor.virtualized import ops

ERFINV = torch.ops.aten.erfinv.default
ROWS, COLUMNS, TILE = 33, 65, 16

lower = lowerings[ERFINV]


def lower_and_read(x: ir.TensorBox) -> ir.TensorBox:
    """Lower ``erfinv`` as ever; of long rows, add a value from eight columns on."""
    result, size = lower(x), x.get_size()
    if len(size) < 2 or size[-2] < ROWS or size[-1] < COLUMNS or size[-1] % TILE == 0:
        return result
    x.realize()
    load, computed = x.make_loader(), result.make_loader()

    def inner(index: list[object]) -> object:
        *rows, column = index
        right = load([*rows, column + TILE // 2])
        return ops.add(
            computed(index), ops.mul(right, ops.constant(0.0, torch.float32))
        )

    return ir.Pointwise.create(
        device=x.get_device(), dtype=x.get_dtype(), inner_fn=inner, ranges=[*size]
    )


lowerings[ERFINV] = lower_and_read
