"""How many checks and seconds a search may still spend."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from shrinkfx.errors import BudgetExhausted

_PACE_OF = 20
"""Checks whose mean time, in seconds, is what the next one is believed to take."""

_PARTS = 4
"""Of the seconds left, optional work may take one part in so many."""

_CHECKS_KEPT = 2
"""A check of the original's repro and what is around that, or three of smaller ones."""


@dataclass
class Budget:
    """A count of checks and a clock; ``None`` means no limit.

    Attributes:
        seconds_before: what earlier sessions of the run have used.
        reserve_s: what is to be left of the time when checks end, for what follows.
        check_s: what a check of the whole program takes, as far as known.
        overtime_s: what may be used beyond the time, by what must be there at the end.
    """

    max_checks: int | None = None
    max_seconds: float | None = None
    clock: Callable[[], float] = time.monotonic
    checks: int = 0
    seconds_before: float = 0.0
    reserve_s: float = 0.0
    check_s: float = 0.0
    overtime_s: float = 0.0
    started: float = field(init=False)
    _pace: deque[float] = field(default_factory=lambda: deque(maxlen=_PACE_OF))
    _checks_s: deque[float] = field(default_factory=lambda: deque(maxlen=_PACE_OF))

    def __post_init__(self) -> None:
        self.started = self.clock()

    @property
    def seconds(self) -> float:
        return self.seconds_before + self.clock() - self.started

    @property
    def seconds_left(self) -> float | None:
        if self.max_seconds is None:
            return None
        return max(0.0, self.spare_s + self.overtime_s)

    @property
    def spare_s(self) -> float:
        """Seconds left that are not kept for the repro; below 0 if those are used."""
        if self.max_seconds is None:
            return math.inf
        return self.max_seconds - self.reserve_s - self.seconds

    @property
    def pace_s(self) -> float:
        """What the next check will take: as the last ones, or as the whole program."""
        last = self._checks_s
        return sum(last) / len(last) if last else self.check_s

    def has(self, seconds: float) -> bool:
        """Tell whether so many are left besides what is kept for the repro."""
        return self.spare_s >= seconds

    def share(self) -> float:
        """Seconds that a part of a run may take which others can do without."""
        return max(0.0, self.spare_s) / _PARTS

    def keep(self, check_s: float) -> None:
        """Keep what it takes to write and verify a repro, of all of the program even.

        Args:
            check_s: what a check of it took.
        """
        self.check_s = max(self.check_s, check_s)
        if self.max_seconds is not None:
            self.reserve_s = _CHECKS_KEPT * self.check_s

    def must_have(self, seconds: float) -> None:
        """See that so many are left, beyond the limit if need be."""
        if self.max_seconds is not None:
            self.overtime_s = max(0.0, seconds - self.spare_s)

    def took(self, seconds: float, check_s: float = 0.0) -> None:
        """Note how long an answer was waited for.

        Args:
            check_s: what the check took, which may have been asked ahead.
        """
        self._pace.append(seconds)
        self._checks_s.append(max(seconds, check_s))

    def time_for(self, checks: float) -> float | None:
        """Estimate how long so many checks will take, if there are as many to spend.

        By the wait for the last ones: as programs shrink, checks get faster.
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
            raise BudgetExhausted(f"limit of {self.max_checks} checks reached")
        if self.seconds_left == 0.0:
            raise BudgetExhausted(
                f"time limit of {self.seconds / 60:.1f} minutes reached"
            )
        self.count()

    def count(self) -> None:
        """Count a check that was paid for before."""
        self.checks += 1
