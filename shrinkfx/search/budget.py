"""How many checks and seconds a search may still spend."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from shrinkfx.errors import BudgetExhausted

_PACE_OF = 20
"""Checks whose time tells what the next will take."""


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
    _pace: deque[float] = field(default_factory=lambda: deque(maxlen=_PACE_OF))

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

    def took(self, seconds: float) -> None:
        """Note how long a check has taken."""
        self._pace.append(seconds)

    def time_for(self, checks: float) -> float | None:
        """Estimate how long so many checks will take, if there are as many to spend.

        By the last ones: as programs shrink, checks get faster.
        """
        if not self._pace:
            return None
        if self.max_checks is not None:
            checks = min(checks, self.max_checks - self.checks)
        return max(0.0, checks) * sum(self._pace) / len(self._pace)

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
