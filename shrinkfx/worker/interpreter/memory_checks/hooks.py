"""Install the checks in Triton's interpreter: loads, stores, atomics, assertions.

The hooks also propagate a pointer's kernel argument through pointer arithmetic.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from shrinkfx.worker.interpreter.findings import Fault
from shrinkfx.worker.interpreter.memory_checks.bounds import CHECKER, ROOT

_POINTER_OPERATIONS = (
    "create_addptr",
    "create_splat",
    "create_unsplat",
    "create_broadcast",
    "create_expand_dims",
    "create_reshape",
    "create_trans",
    "create_bitcast",
    "create_select",
    "create_join",
)


def install_hooks() -> None:
    """Install the checks in Triton's interpreter, for the rest of this process."""
    from shrinkfx.worker.private_api.triton_api import interpreter

    builder = interpreter.InterpreterBuilder
    for name in _POINTER_OPERATIONS:
        if name in builder.__dict__:
            setattr(builder, name, _propagate_root(builder.__dict__[name]))
    _hook_accesses(builder, interpreter.TensorHandle)
    for blocks in ("BlockPointerHandle", "TensorDescHandle"):
        if owner := getattr(interpreter, blocks, None):
            owner.materialize_pointers = _propagate_block_root(
                owner.materialize_pointers
            )


def _propagate_root(operation: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap an operation on pointers to propagate the kernel argument to its result."""
    from shrinkfx.worker.private_api.triton_api import TensorHandle

    def wrapped(builder: Any, *args: Any, **kwargs: Any) -> Any:
        made = operation(builder, *args, **kwargs)
        if isinstance(made, TensorHandle) and ROOT not in made.attr:
            tags = (getattr(argument, "attr", {}).get(ROOT) for argument in args)
            roots = {root for root in tags if root is not None}
            if len(roots) == 1:  # a select between two arguments is ambiguous
                made.attr[ROOT] = roots.pop()
        return made

    return wrapped


def _propagate_block_root(materialize: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a block pointer's materialization to propagate the kernel argument."""

    def wrapped(self: Any, *args: Any, **kwargs: Any) -> Any:
        pointers, masks = materialize(self, *args, **kwargs)
        if root := self.base.attr.get(ROOT):
            pointers.attr[ROOT] = root
        return pointers, masks

    return wrapped


def _hook_accesses(builder: Any, handle: Any) -> None:
    """Replace the builder's loads, stores, atomics and assertions by checked ones."""
    import triton.language as tl

    load, store = builder.create_masked_load, builder.create_masked_store
    change, swap = builder.create_atomic_rmw, builder.create_atomic_cas

    def inside(fault: Fault, pointers: Any, mask: Any) -> Any:
        # The mask of a block pointer is a bare array.
        array = mask.data if isinstance(mask, handle) else mask
        return handle(CHECKER.mask_in_bounds(fault, pointers, array), tl.int1)

    def checked_load(self: Any, p: Any, mask: Any, *rest: Any, **more: Any) -> Any:
        return load(self, p, inside(Fault.LOAD, p, mask), *rest, **more)

    def checked_store(
        self: Any, p: Any, value: Any, mask: Any, *rest: Any, **more: Any
    ) -> Any:
        return store(self, p, value, inside(Fault.STORE, p, mask), *rest, **more)

    def checked_change(
        self: Any, op: Any, p: Any, value: Any, mask: Any, *rest: Any, **more: Any
    ) -> Any:
        in_bounds = inside(Fault.ATOMIC, p, mask)
        if is_bfloat16_sum(op, value):
            before = add_bfloat16(p.data, value.data, in_bounds.data)
            return handle(before, value.dtype.scalar)
        return change(self, op, p, value, in_bounds, *rest, **more)

    def checked_swap(self: Any, p: Any, old: Any, *rest: Any, **more: Any) -> Any:
        if CHECKER.mask_in_bounds(Fault.ATOMIC, p, True).all():
            return swap(self, p, old, *rest, **more)
        return old

    def checked_assert(
        self: Any, condition: Any, message: Any, *_: Any, **__: Any
    ) -> None:
        CHECKER.check_assertion(condition, str(message))

    builder.create_masked_load = checked_load
    builder.create_masked_store = checked_store
    builder.create_atomic_rmw = checked_change
    builder.create_atomic_cas = checked_swap
    builder.create_assert = checked_assert


# Emulate atomic additions of bfloat16, which Triton's interpreter lacks.
#
# The interpreter runs programs one after the other, so adding lane by lane is atomic.

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
