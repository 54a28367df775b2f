"""Numbers of a fill: how plain each is, and plainer ones that may do as well."""

from __future__ import annotations

import math
from collections.abc import Iterator

Number = bool | int | float | complex

MOST = 3
"""How much there is to a number at most."""

_SPELT_OUT = 1 << 32
"""Powers of two below this are written as such, and known by sight."""


def plainness(number: Number) -> int:
    """Say how much there is to a number: nothing to 0 and 1, little to one digit."""
    if number in (0, 1) and not str(number).startswith("-"):
        return 0
    if isinstance(number, complex) or not math.isfinite(number):
        return MOST
    if _is_power_of_two(abs(number)) or _of_one_digit(number) == number:
        return 1
    return 2 if number == int(number) else MOST


def plainer_numbers(number: Number) -> Iterator[Number]:
    """Yield three numbers at most that stand near by, besides 0 and 1.

    Of 205.05 a power of ten, 100, one of two, 128, and 205: two that are no bigger, so
    that its dtype holds them. Of -205.05 it is -1, -100, -205.
    """
    if isinstance(number, (bool, complex)) or not math.isfinite(number):
        return
    kind, size = type(number), abs(number)
    ten = kind(_power_of_ten(size))
    two = kind(1 << int(size).bit_length() >> 1)
    rounded = kind(round(number)) if size >= 1 else _of_one_digit(number)
    near = (-kind(1), -ten, rounded) if number < 0 else (ten, two, rounded)
    yield from (each for each in near if plainness(each) < plainness(number))


def is_power(number: float) -> bool:
    """Tell whether it is a power of ten or two, less its sign.

    Nothing of a model is in such a number but a magnitude: it is one of those above.
    """
    size = abs(number)
    if not size or not math.isfinite(size):
        return False
    return _is_power_of_two(size) or size == _power_of_ten(size)


def _power_of_ten(size: float) -> float:
    return float(f"1e{_exponent(size)}")


def _is_power_of_two(number: float) -> bool:
    whole = int(number) if number == int(number) else 0
    return 0 < whole < _SPELT_OUT and whole & (whole - 1) == 0


def _of_one_digit(number: float) -> float:
    return float(f"{number:.0e}")


def _exponent(number: float) -> str:
    return f"{number:e}".partition("e")[2]
