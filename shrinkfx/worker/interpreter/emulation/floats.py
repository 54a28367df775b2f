"""Emulate conversions between floating-point types, rounded as in eager.

Triton's interpreter truncates 8-bit floats where hardware rounds to the nearest.
"""

from __future__ import annotations

from typing import Any

import torch

_STORED_AS_BITS = {
    "fp8e4nv": (torch.float8_e4m3fn, torch.uint8),
    "fp8e5": (torch.float8_e5m2, torch.uint8),
    "bf16": (torch.bfloat16, torch.uint16),
}
_NATIVE = {"fp16": torch.float16, "fp32": torch.float32, "fp64": torch.float64}


def patch_float_conversions() -> None:
    """Replace the interpreter's conversions of 8-bit floats by those of torch."""
    from shrinkfx.worker.private_api.triton_api import interpreter

    builder = interpreter.InterpreterBuilder
    original = builder.create_fp_to_fp

    def convert(self: Any, source: Any, kind: Any, rounding: Any) -> Any:
        before, after = str(source.dtype.scalar), str(kind.scalar)
        known = {before, after} <= {*_STORED_AS_BITS, *_NATIVE}
        if not known or not {before, after} & {"fp8e4nv", "fp8e5"}:
            return original(self, source, kind, rounding)
        data = _to_numpy(_to_torch(source.data, before), after)
        return interpreter.TensorHandle(data, kind.scalar)

    builder.create_fp_to_fp = convert


def _to_torch(data: Any, kind: str) -> torch.Tensor:
    value = torch.from_numpy(data.copy())
    return value.view(_STORED_AS_BITS[kind][0]) if kind in _STORED_AS_BITS else value


def _to_numpy(value: torch.Tensor, kind: str) -> Any:
    if kind in _NATIVE:
        return value.to(_NATIVE[kind]).numpy()
    dtype, bits = _STORED_AS_BITS[kind]
    return value.to(dtype).view(bits).numpy()
