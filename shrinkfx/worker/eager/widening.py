"""A program's values in float64: what a narrower one gets wrong is known by that."""

from __future__ import annotations

from typing import Any

import torch

_NARROW = (torch.float32, torch.float16, torch.bfloat16)


def wide(tensor: torch.Tensor) -> torch.Tensor:
    """Widen what has rounding errors; integers are compared as they are."""
    if tensor.is_complex():
        return tensor.to(torch.complex128)
    if tensor.is_floating_point():
        return tensor.to(torch.float64)
    return tensor.to(torch.int64)


def to_float64(value: Any) -> Any:
    """Widen a tensor of floating-point numbers; hand anything else back."""
    if isinstance(value, torch.Tensor) and value.is_floating_point():
        return value.to(torch.float64)
    return value


def widen_dtype(value: Any) -> Any:
    """Have an operator that is told a narrow dtype make float64."""
    narrow = isinstance(value, torch.dtype) and value in _NARROW
    return torch.float64 if narrow else value


def own_error(expected: torch.Tensor, exact: torch.Tensor) -> torch.Tensor:
    """Measure how far eager itself is from a float64 run; infinite overflows too."""
    return (wide(expected) - wide(exact)).abs().nan_to_num(0.0, posinf=torch.inf)
