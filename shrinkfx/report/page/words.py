"""Numbers as text, as the page shows them."""

from __future__ import annotations


def count(number: int | None, what: str) -> str:
    """Return a number with its noun; '' if the number is not known."""
    if number is None:
        return ""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def time(seconds: float) -> str:
    """Return a duration in seconds."""
    return f"{seconds:,.0f} s"
