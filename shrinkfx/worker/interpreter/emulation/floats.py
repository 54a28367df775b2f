"""Floating-point operations and reductions as a GPU performs them."""

from __future__ import annotations

from typing import Any

import torch

from shrinkfx.worker.private_api import triton_api

# Triton's interpreter truncates 8-bit floats where hardware rounds to the nearest.

_STORED_AS_BITS = {
    "fp8e4nv": (torch.float8_e4m3fn, torch.uint8),
    "fp8e5": (torch.float8_e5m2, torch.uint8),
    "bf16": (torch.bfloat16, torch.uint16),
}
_NATIVE = {"fp16": torch.float16, "fp32": torch.float32, "fp64": torch.float64}


def patch_float_conversions() -> None:
    """Replace the interpreter's conversions of 8-bit floats by those of torch."""
    builder = triton_api.interpreter.InterpreterBuilder
    original = builder.create_fp_to_fp

    def convert(self: Any, source: Any, kind: Any, rounding: Any) -> Any:
        before, after = str(source.dtype.scalar), str(kind.scalar)
        known = {before, after} <= {*_STORED_AS_BITS, *_NATIVE}
        if not known or not {before, after} & {"fp8e4nv", "fp8e5"}:
            return original(self, source, kind, rounding)
        data = _to_numpy(_to_torch(source.data, before), after)
        return triton_api.interpreter.TensorHandle(data, kind.scalar)

    builder.create_fp_to_fp = convert


def _to_torch(data: Any, kind: str) -> torch.Tensor:
    value = torch.from_numpy(data.copy())
    return value.view(_STORED_AS_BITS[kind][0]) if kind in _STORED_AS_BITS else value


def _to_numpy(value: torch.Tensor, kind: str) -> Any:
    if kind in _NATIVE:
        return value.to(_NATIVE[kind]).numpy()
    dtype, bits = _STORED_AS_BITS[kind]
    return value.to(dtype).view(bits).numpy()


# Emulate reductions and scans on whole blocks, because Triton's interpreter is slow.
#
# The interpreter calls the combining function for each element, which takes 0.1 s for
# a block of 2048. Combining in pairs, as hardware does, takes eleven calls.


def patch_reductions() -> None:
    """Replace the interpreter's slow paths, for the rest of this process."""
    reduce, scan = triton_api.interpreter.ReduceOps, triton_api.interpreter.ScanOps
    if hasattr(reduce, "generic_reduce") and hasattr(reduce, "unravel"):
        reduce.generic_reduce = _reduce
    if hasattr(scan, "generic_scan"):
        scan.generic_scan = _scan


def _reduce(self: Any, inputs: Any) -> list[Any]:
    """Reduce all operands along the axis in pairs; replaces ``generic_reduce``."""
    import numpy as np

    originals, (inputs, axis) = inputs, self.unravel(inputs, self.axis)
    kinds = [value.dtype for value in inputs]
    parts = [np.moveaxis(value.handle.data, axis, 0) for value in inputs]
    while len(parts[0]) > 1:
        if len(parts[0]) % 2:
            raise NotImplementedError("a reduction of an odd number of elements")
        parts = _combined(
            self, [p[0::2] for p in parts], [p[1::2] for p in parts], kinds
        )
    results = []
    for part, kind in zip(parts, kinds, strict=True):
        data = part[0]
        if self.keep_dims and self.axis is not None:
            data = np.expand_dims(data, axis)
        elif self.keep_dims:
            data = data.reshape((1,) * len(originals[0].handle.data.shape))
        results.append(self.to_tensor(data, kind))
    return results


def _scan(self: Any, inputs: Any) -> list[Any]:
    """Scan all operands along the axis in log2(n) steps; replaces ``generic_scan``."""
    import numpy as np

    kinds = [value.dtype for value in inputs]
    parts = [np.moveaxis(value.handle.data, self.axis, 0) for value in inputs]
    count, step = len(parts[0]), 1
    while step < count:
        before = [np.roll(part, step, axis=0) for part in parts]
        combined = _combined(self, before, parts, kinds)
        parts = [
            np.concatenate([old[:step], new[step:]])
            for old, new in zip(parts, combined, strict=True)
        ]
        step *= 2
    return [
        self.to_tensor(np.moveaxis(part, 0, self.axis), kind)
        for part, kind in zip(parts, kinds, strict=True)
    ]


def _combined(self: Any, left: Any, right: Any, kinds: Any) -> list[Any]:
    """Combine two halves of all operands elementwise."""
    import numpy as np

    shape = left[0].shape
    made = self.combine_fn(
        *(self.to_tensor(v, k) for v, k in zip(left, kinds, strict=True)),
        *(self.to_tensor(v, k) for v, k in zip(right, kinds, strict=True)),
    )
    made = made if isinstance(made, tuple) else (made,)
    datas = [getattr(getattr(m, "handle", None), "data", m) for m in made]
    return [
        np.broadcast_to(np.asarray(data, dtype=value.dtype), shape)
        for data, value in zip(datas, left, strict=True)
    ]
