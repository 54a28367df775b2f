"""Check where a kernel loads and stores, which Triton's interpreter does not.

The text of this module is pasted into ``kernel.py``, which users run without shrinkfx,
so it must not need any module of it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import torch

ROOM = 1 << 16
"""The unused bytes on either side of each tensor's memory."""


LARGE = 1 << 26
"""Memory of this many bytes or more is mapped on its own, so it needs no copy."""


def apart(memory: torch.Tensor) -> torch.Tensor:
    """Copy a vector to memory with unused bytes on either side."""
    if memory.nbytes >= LARGE:
        return memory
    size = memory.element_size()
    padded = torch.empty(memory.numel() + 2 * ROOM // size, dtype=memory.dtype)
    start = (-padded.data_ptr()) % 16 // size + ROOM // size
    copy = padded[start : start + memory.numel()]
    return copy.copy_(memory)


def require_aligned(
    arguments: Iterable[tuple[str, object]], aligned: Collection[str]
) -> None:
    """Refuse arguments that violate the alignment that the kernel was compiled for.

    Raises:
        ValueError: an argument that is declared to be divisible by 16 is not.
    """
    for name, value in arguments:
        if name not in aligned:
            continue
        what = "past"
        if isinstance(value, torch.Tensor) and value.numel():
            value, what = value.data_ptr(), "bytes past"
        if isinstance(value, int) and value % 16:
            text = f"declared divisible by 16, is {value % 16} {what}"
            raise ValueError(f"misaligned address through {name}: {text}")


def watch(spans: Mapping[str, tuple[torch.Tensor, torch.Tensor]]) -> None:
    """Make Triton's interpreter raise on out-of-bounds accesses and failed assertions.

    An access is out of bounds if it is outside of the memory of all arguments.

    Args:
        spans: for each argument, the tensor and the vector of all its memory.
    """
    import numpy as np
    from triton.runtime import interpreter

    ranges = [
        (name, value.data_ptr(), memory.data_ptr(), memory.nbytes)
        for name, (value, memory) in spans.items()
    ]
    builder = interpreter.InterpreterBuilder

    def check(what: str, pointers: Any, mask: Any) -> None:
        addresses = pointers.data.astype(np.int64)
        lanes = np.asarray(getattr(mask, "data", mask), dtype=bool)
        size = max(1, pointers.get_element_ty().primitive_bitwidth // 8)
        outside = np.broadcast_to(lanes, addresses.shape).copy()
        for _, _, low, total in ranges:
            if total >= size:
                outside &= (addresses < low) | (addresses > low + total - size)
        if outside.any():
            address = int(addresses[outside][0])
            name, base, low, total = min(
                ranges,
                key=lambda k: min(abs(address - k[2]), abs(address - k[2] - k[3])),
            )
            place = (
                f"element {(address - base) // size} of {(low + total - base) // size}"
            )
            raise IndexError(
                f"illegal memory access: out-of-bounds {what} of {size} bytes "
                f"through {name}: {place}, {int(outside.sum())} lanes"
            )

    def checked(name: str, what: str, place: int) -> None:
        original = getattr(builder, name)

        def access(self: Any, *args: Any, **kwargs: Any) -> Any:
            pointers = args[1] if name == "create_atomic_rmw" else args[0]
            check(what, pointers, True if place < 0 else args[place])
            return original(self, *args, **kwargs)

        setattr(builder, name, access)

    def asserted(self: Any, condition: Any, message: Any, *_: Any) -> None:
        if not np.asarray(condition.data, dtype=bool).all():
            raise AssertionError(f"device-side assert: {message}")

    checked("create_masked_load", "load", 1)
    checked("create_masked_store", "store", 2)
    checked("create_atomic_rmw", "atomic", 3)
    checked("create_atomic_cas", "atomic", -1)
    builder.create_assert = asserted
    options = interpreter.interpreter_builder.options
    interpreter.interpreter_builder.options = dataclasses.replace(
        options, debug=True, sanitize_overflow=False
    )
