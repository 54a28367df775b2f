"""Numbers in words, as the page has them."""

from __future__ import annotations


def count(number: int | None, what: str) -> str:
    """Say how many there are; nothing where that is not known."""
    if number is None:
        return ""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def time(seconds: float) -> str:
    """Say how long it took, in seconds as everywhere."""
    return f"{seconds:,.0f} s"
