"""The complexity of numbers in initializers, and simpler numbers nearby."""

from __future__ import annotations

import math
from collections.abc import Iterator

Number = bool | int | float | complex

MOST = 3
"""The largest complexity of a number."""

_SPELT_OUT = 1 << 32
"""Powers of two below this limit are written as integers, and recognizable."""


def number_complexity(number: Number) -> int:
    """Return the complexity of a number: 0 for 0 and 1, 1 for a single digit."""
    if number in (0, 1) and not str(number).startswith("-"):
        return 0
    if isinstance(number, complex) or not math.isfinite(number):
        return MOST
    if _is_power_of_two(abs(number)) or _of_one_digit(number) == number:
        return 1
    return 2 if number == int(number) else MOST


def simpler_numbers(number: Number) -> Iterator[Number]:
    """Yield at most three simpler numbers near a number, besides 0 and 1.

    For 205.05 these are a power of ten, 100, a power of two, 128, and 205. The powers
    are not larger, so that the dtype can hold them. For -205.05 they are -1, -100,
    -205.
    """
    if isinstance(number, (bool, complex)) or not math.isfinite(number):
        return
    kind, size = type(number), abs(number)
    ten = kind(_power_of_ten(size))
    two = kind(1 << int(size).bit_length() >> 1)
    rounded = kind(round(number)) if size >= 1 else _of_one_digit(number)
    near = (-kind(1), -ten, rounded) if number < 0 else (ten, two, rounded)
    yield from (
        each for each in near if number_complexity(each) < number_complexity(number)
    )


def is_power(number: float) -> bool:
    """Return whether the absolute value is a power of ten or of two.

    Such a number reveals nothing of a model but a magnitude, because this module
    itself proposes it in place of other numbers.
    """
    size = abs(number)
    if not size or not math.isfinite(size):
        return False
    return _is_power_of_two(size) or size == _power_of_ten(size)


def _power_of_ten(size: float) -> float:
    return float(f"1e{_exponent(size)}")


def _is_power_of_two(number: float) -> bool:
    integer = int(number) if number == int(number) else 0
    return 0 < integer < _SPELT_OUT and integer & (integer - 1) == 0


def _of_one_digit(number: float) -> float:
    return float(f"{number:.0e}")


def _exponent(number: float) -> str:
    return f"{number:e}".partition("e")[2]
