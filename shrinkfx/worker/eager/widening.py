"""Values in float64, which show the rounding errors of narrower dtypes."""

from __future__ import annotations

import math
from typing import Any

import torch

_NARROW = (torch.float32, torch.float16, torch.bfloat16)


def widen(tensor: torch.Tensor) -> torch.Tensor:
    """Convert to the widest dtype of its kind; integers are compared as int64."""
    if tensor.is_quantized:
        tensor = tensor.dequantize()
    if tensor.is_complex():
        return tensor.to(torch.complex128)
    if tensor.is_floating_point():
        return tensor.to(torch.float64)
    return tensor.to(torch.int64)


def to_float64(value: Any) -> Any:
    """Convert a floating-point tensor to float64; return others unchanged."""
    if isinstance(value, torch.Tensor) and value.is_floating_point():
        return value.to(torch.float64)
    return value


def to_float32(value: Any) -> Any:
    """Convert a float64 tensor or dtype to float32; return others unchanged."""
    if isinstance(value, torch.Tensor) and value.dtype == torch.float64:
        return value.to(torch.float32)
    return torch.float32 if value is torch.float64 else value


def widen_dtype(value: Any) -> Any:
    """Replace a narrow floating-point dtype by float64; return others unchanged."""
    narrow = isinstance(value, torch.dtype) and value in _NARROW
    return torch.float64 if narrow else value


def rounding_bound(expected: torch.Tensor, exact: torch.Tensor) -> torch.Tensor:
    """Bound the rounding error of each element of an eager result.

    Floating-point results have one bound for all elements, because among many elements
    some are exact by chance: ten times the error that nine in ten of the inexact
    elements stay within, or five times the largest error, whichever is more. The bound
    of an integer is ten times its own error.

    Results that only round differently stay within the bound. Of 194,256 elements of
    results of twelve architectures in bfloat16 and float16, none was beyond it; one in
    fourteen was beyond ten times its own error (``benchmarks/rounding.py``).

    Args:
        expected: the eager result.
        exact: the result of a float64 run, of the same shape.

    Returns:
        A bound for each element, infinite where one of the two overflows.
    """
    error = (widen(expected) - widen(exact)).abs().nan_to_num(0.0, posinf=torch.inf)
    if not (expected.is_floating_point() or expected.is_complex()):
        return _INTEGER_FACTOR * error
    inexact = error[error.isfinite() & (error > 0)]
    if not inexact.numel():
        return error  # nothing, or infinite
    quantile = inexact.kthvalue(math.ceil(_QUANTILE * inexact.numel())).values
    bound = torch.maximum(_QUANTILE_FACTOR * quantile, _LARGEST_FACTOR * inexact.max())
    return error.where(error.isinf(), bound)


_INTEGER_FACTOR = _QUANTILE_FACTOR = 10
_LARGEST_FACTOR = 5
_QUANTILE = 0.9


def mark_beyond_rounding(
    actual: torch.Tensor,
    expected: torch.Tensor,
    exact: torch.Tensor,
    tolerance: tuple[float, float],
) -> torch.Tensor:
    """Mark the elements that rounding cannot explain.

    Those are elements where |actual - expected| is more than rtol |expected| + the
    larger of atol and the bound, or where only one of both is a number.

    Args:
        tolerance: rtol and atol.
    """
    rtol, atol = tolerance
    a, e = widen(actual), widen(expected)
    size = e.abs().nan_to_num(0.0, posinf=0.0)
    slack = rtol * size + rounding_bound(expected, exact).clamp(min=atol)
    is_beyond = (a - e).abs().nan_to_num(torch.inf) > slack
    return is_beyond | (~a.isfinite() & e.isfinite())
