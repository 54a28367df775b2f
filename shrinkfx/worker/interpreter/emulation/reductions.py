"""Emulate reductions and scans on whole blocks, because Triton's interpreter is slow.

The interpreter calls the combining function for each element, which takes 0.1 s for a
block of 2048. Combining in pairs, as hardware does, takes eleven calls.
"""

from __future__ import annotations

from typing import Any


def patch_reductions() -> None:
    """Replace the interpreter's slow paths, for the rest of this process."""
    from shrinkfx.worker.private_api.triton_api import interpreter

    reduce, scan = interpreter.ReduceOps, interpreter.ScanOps
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
