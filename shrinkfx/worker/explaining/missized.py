"""Find buffers whose size in memory differs from the compiler's plan.

The plan gives a buffer's sizes over symbols; compiled code reads each symbol's value
off the inputs of a call. If the plan is right and the buffer's size is not, then
compiled code read a symbol wrongly, and no operator is at fault.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from shrinkfx.worker.explaining.lowered import ComparedRun
from shrinkfx.worker.model import flat_inputs
from shrinkfx.worker.sizes.bindings import bind_symbols


def describe_wrong_size(
    value: torch.Tensor, planned: Sequence[Any], ran: ComparedRun
) -> str:
    """Return a message about a size of a buffer that compiled code got wrong, or ''.

    Args:
        planned: the buffer's sizes, expressions over the program's symbols.
    """
    if len(planned) != value.dim():
        return ""
    known = bind_symbols(ran.exported, flat_inputs(ran.exported, ran.inputs))
    numbers = {str(size): number for size, number in known.items()}
    for size, real in zip(planned, value.shape, strict=True):
        symbols: set[Any] = getattr(size, "free_symbols", set())
        if not symbols or any(str(symbol) not in numbers for symbol in symbols):
            continue
        right = size.xreplace({symbol: numbers[str(symbol)] for symbol in symbols})
        if right.is_number and int(right) != real:
            return (
                f"{size} is {int(right)} at these inputs, and {real} in compiled code"
            )
    return ""
