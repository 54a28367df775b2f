"""Buffers that are of another size than the compiler has planned.

What a buffer's sizes are is planned over symbols; what a symbol is in a call, compiled
code reads off the call's inputs. Where the plan is right and the buffer is not, that
reading is wrong, and no operator is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from shrinkfx.worker.explaining.lowered import Ran
from shrinkfx.worker.model import flat_inputs
from shrinkfx.worker.sizes.bindings import bind


def missized(value: torch.Tensor, planned: Sequence[Any], ran: Ran) -> str:
    """Say which planned size of a buffer is another one in memory; '' where none is.

    Args:
        planned: its sizes, expressions over the program's symbols.
    """
    if len(planned) != value.dim():
        return ""
    known = bind(ran.exported, flat_inputs(ran.exported, ran.inputs))
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
