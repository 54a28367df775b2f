"""Measure how a tensor differs from the expected tensor."""

from __future__ import annotations

from collections.abc import Callable

import torch

from shrinkfx.protocol.kernel_values import Wrong
from shrinkfx.worker.eager.widening import mark_beyond_rounding, widen

Tolerance = Callable[[torch.dtype], tuple[float, float]]
"""The relative and absolute tolerance for values of a dtype."""

_ROUNDING_FACTOR = 10
"""A difference up to this multiple of the effect of rounding is no error."""


def measure_difference(
    actual: torch.Tensor,
    expected: torch.Tensor,
    exact: torch.Tensor | None,
    tolerance: Tolerance,
    rounding: torch.Tensor | None = None,
) -> Wrong | None:
    """Measure how a tensor differs from eager's; return None if it is close enough.

    Args:
        exact: the float64 result, if there is one; differences that eager's own
            rounding explains are no errors.
        tolerance: the relative and absolute tolerance by dtype.
        rounding: for each element, how far it moves if its inputs are rounded
            differently.
    """
    for what in ("dtype", "shape"):
        a, e = getattr(actual, what), getattr(expected, what)
        if a != e:
            a, e = (tuple(v) if what == "shape" else v for v in (a, e))
            return Wrong(metadata=f"its {what} is {a}, eager's {e}")
    if exact is not None and exact.shape != expected.shape:
        exact = None
    a, e = widen(actual), widen(expected)
    rtol, atol = tolerance(expected.dtype)
    marked = ~torch.isclose(a, e, rtol=rtol, atol=atol, equal_nan=True)
    if exact is not None:
        marked &= mark_beyond_rounding(actual, expected, exact, (rtol, atol))
    if rounding is not None:
        marked &= (a - e).abs().nan_to_num(torch.inf) > _ROUNDING_FACTOR * rounding
    if not marked.any():
        return None
    return _measure_marked(actual, expected, exact, marked, (rtol, atol))


def _measure_marked(
    actual: torch.Tensor,
    expected: torch.Tensor,
    exact: torch.Tensor | None,
    marked: torch.Tensor,
    limits: tuple[float, float],
) -> Wrong:
    """Return the number, sizes and first position of the marked differences."""
    a, e = widen(actual)[marked], widen(expected)[marked]
    first = tuple(int(i) for i in marked.nonzero()[0])
    errors = (a - e).abs().to(torch.float64)
    return Wrong(
        wrong=int(marked.sum()),
        of=marked.numel(),
        first=first,
        got=str(actual[first].item()),
        expected=str(expected[first].item()),
        largest=_largest(errors),
        relative=_largest(errors / e.abs()),
        ulps=_largest(errors / _ulp(e, expected.dtype)),
        nans=_nans(actual),
        nans_expected=_nans(expected),
        exact=""
        if exact is None
        else _find_agreement(widen(exact)[marked], a, e, limits),
    )


def _largest(errors: torch.Tensor) -> float | None:
    """Return the largest finite error; None if there is none."""
    finite = errors[errors.isfinite()]
    return float(finite.max()) if finite.numel() else None


def _ulp(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return the unit in the last place of each value; NaN for integers.

    It is 2 ** (floor(log2 |value|)) * eps, and at least that of the smallest normal
    number.
    """
    size = values.abs().to(torch.float64)
    if not dtype.is_floating_point and not dtype.is_complex:
        return torch.full_like(size, torch.nan)
    info = torch.finfo(dtype)
    exponent = torch.frexp(size.clamp(min=info.smallest_normal)).exponent - 1
    return torch.pow(2.0, exponent.to(torch.float64)) * info.eps


def _nans(values: torch.Tensor) -> int:
    return int(values.isnan().sum())


def _find_agreement(
    exact: torch.Tensor,
    actual: torch.Tensor,
    expected: torch.Tensor,
    limits: tuple[float, float],
) -> str:
    """Return which of the two results float64 agrees with, where they differ.

    Returns:
        ``eager``, ``compiled``, ``both`` or ``neither``.
    """
    rtol, atol = limits
    agrees = [
        bool(torch.isclose(v, exact, rtol=rtol, atol=atol, equal_nan=True).all())
        for v in (expected, actual)
    ]
    names = {(True, False): "eager", (False, True): "compiled", (True, True): "both"}
    return names.get((agrees[0], agrees[1]), "neither")
