"""Emulate atomic additions of bfloat16, which Triton's interpreter lacks.

The interpreter runs programs one after the other, so adding lane by lane is atomic.
"""

from __future__ import annotations

import ctypes
from typing import Any

CELL = ctypes.c_uint16
"""The interpreter stores a bfloat16 as the upper 16 bits of a float32."""


def is_bfloat16_sum(operation: Any, value: Any) -> bool:
    """Return whether an atomic operation adds bfloat16 numbers."""
    is_sum = getattr(operation, "name", "") == "FADD"
    return is_sum and str(value.dtype.scalar) == "bf16"


def add_bfloat16(pointers: Any, value: Any, mask: Any) -> Any:
    """Add ``value`` to the memory at ``pointers``, in the lanes of ``mask``.

    Args:
        pointers, value, mask: NumPy arrays that broadcast to one shape: addresses,
            bits, bools.

    Returns:
        The bits before the addition, 0 in the other lanes.
    """
    import numpy as np

    addresses, bits, wanted = np.broadcast_arrays(pointers, value, mask)
    before = np.zeros(addresses.shape, dtype=np.uint16)
    for lane in map(tuple, np.argwhere(wanted)):
        cell = CELL.from_address(int(addresses[lane]))
        before[lane] = cell.value
        cell.value = _bits(_number(cell.value) + _number(int(bits[lane])))
    return before


def _number(bits: int) -> Any:
    """Convert the bits of a bfloat16 to a float32."""
    import numpy as np

    return np.array(bits << 16, dtype=np.uint32).view(np.float32)


def _bits(number: Any) -> int:
    """Round a float32 to the nearest bfloat16, ties to even, and return its bits."""
    import numpy as np

    if np.isnan(number):
        return 0x7FC0
    bits = int(np.float32(number).view(np.uint32))
    return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
