"""What a run tells its one listener: frozen events, no prints."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from shrinkfx.failure.verdict import Outcome


@dataclass(frozen=True)
class Noted:
    """A line for the user: what was found, or what is done next."""

    text: str


@dataclass(frozen=True)
class Started:
    """The search begins, at so many operators."""

    operators: int
    max_checks: int | None


@dataclass(frozen=True)
class Checked:
    """One question was answered."""

    check: int
    outcome: Outcome
    operators: int
    seconds: float
    seconds_left: float | None


@dataclass(frozen=True)
class Stepped:
    """A smaller program fails in the same way."""

    before: int
    after: int
    strategy: str
    check: int
    seconds: float


Event = Noted | Started | Checked | Stepped
Listener = Callable[[Event], None]


def ignore(event: Event) -> None:
    """Listen to nothing."""
