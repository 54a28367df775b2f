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


@dataclass(frozen=True)
class Tried:
    """A program was run at some sizes.

    Attributes:
        answer: what it did, in a word; ``said`` in more, if there is more to say.
    """

    sizes: str
    answer: str
    said: str


Event = Noted | Started | Checked | Stepped | Tried
Listener = Callable[[Event], None]


def ignore(event: Event) -> None:
    """Listen to nothing."""
