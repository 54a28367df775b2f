"""How many checks and seconds a search may still spend."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from shrinkfx.errors import BudgetExhausted


@dataclass
class Budget:
    """A count of checks and a clock; ``None`` means no limit.

    Attributes:
        seconds_before: what earlier sessions of the run have used.
        reserve_s: what is to be left of the time when checks end, for what follows.
    """

    max_checks: int | None = None
    max_seconds: float | None = None
    clock: Callable[[], float] = time.monotonic
    checks: int = 0
    seconds_before: float = 0.0
    reserve_s: float = 0.0
    started: float = field(init=False)

    def __post_init__(self) -> None:
        self.started = self.clock()

    @property
    def seconds(self) -> float:
        return self.seconds_before + self.clock() - self.started

    @property
    def seconds_left(self) -> float | None:
        if self.max_seconds is None:
            return None
        return max(0.0, self.max_seconds - self.reserve_s - self.seconds)

    def spend(self) -> None:
        """Count one check.

        Raises:
            BudgetExhausted: there is none left.
        """
        if self.max_checks is not None and self.checks >= self.max_checks:
            raise BudgetExhausted(f"{self.max_checks} checks are spent")
        if self.seconds_left == 0.0:
            raise BudgetExhausted(f"{self.seconds / 60:.1f} minutes are spent")
        self.count()

    def count(self) -> None:
        """Count a check that was paid for before."""
        self.checks += 1
