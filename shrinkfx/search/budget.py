"""The budget of a search: the checks and seconds that it may still spend."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from shrinkfx.errors import BudgetExhausted

_PACE_CHECKS = 20
"""The number of last checks whose mean time, in seconds, predicts the next one."""

_PARTS = 4
"""The divisor of the seconds left that gives the share of an optional phase."""

_RESERVE_CHECKS = 2
"""The time kept for the repro, in checks of the input program.

It covers one check of the input program's repro and its overhead, or three checks of
smaller repros."""


@dataclass
class Budget:
    """A limit on the number of checks and on the time; ``None`` means no limit.

    Attributes:
        seconds_before: the seconds that earlier sessions of the run have used.
        reserve_s: the seconds that must be left when the checks end, for the repro.
        check_s: the time of a check of the input program, as far as known.
        overtime_s: the seconds beyond the limit that a mandatory phase may use.
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
    _pace: deque[float] = field(default_factory=lambda: deque(maxlen=_PACE_CHECKS))
    _checks_s: deque[float] = field(default_factory=lambda: deque(maxlen=_PACE_CHECKS))

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
        """Seconds left beyond the reserve for the repro; negative if that is used."""
        if self.max_seconds is None:
            return math.inf
        return self.max_seconds - self.reserve_s - self.seconds

    @property
    def pace_s(self) -> float:
        """The expected time of the next check: the last ones' mean, or ``check_s``."""
        last = self._checks_s
        return sum(last) / len(last) if last else self.check_s

    def has(self, seconds: float) -> bool:
        """Tell whether so many seconds are left beyond the reserve for the repro."""
        return self.spare_s >= seconds

    def share(self) -> float:
        """Return the seconds that an optional phase may take."""
        return max(0.0, self.spare_s) / _PARTS

    def keep(self, check_s: float) -> None:
        """Reserve the time to write and verify a repro, even of the whole program.

        Args:
            check_s: the time that a check of the program took.
        """
        self.check_s = max(self.check_s, check_s)
        if self.max_seconds is not None:
            self.reserve_s = _RESERVE_CHECKS * self.check_s

    def guarantee_seconds(self, seconds: float) -> None:
        """Guarantee that so many seconds are left, beyond the limit if necessary."""
        if self.max_seconds is not None:
            self.overtime_s = max(0.0, seconds - self.spare_s)

    def record_wait(self, seconds: float, check_s: float = 0.0) -> None:
        """Record how long the search waited for an answer.

        Args:
            check_s: the time of the check, which may have begun as a speculation.
        """
        self._pace.append(seconds)
        self._checks_s.append(max(seconds, check_s))

    def time_for(self, checks: float) -> float | None:
        """Estimate the seconds of the next checks; None before the first check.

        The estimate uses the last waits, because checks get faster as programs shrink.
        It counts no more checks than the budget has.
        """
        if not self._pace:
            return None
        if self.max_checks is not None:
            checks = min(checks, self.max_checks - self.checks)
        return max(0.0, checks) * sum(self._pace) / len(self._pace)

    def spend(self) -> None:
        """Count one check.

        Raises:
            BudgetExhausted: no check or no time is left.
        """
        if self.max_checks is not None and self.checks >= self.max_checks:
            raise BudgetExhausted(f"limit of {self.max_checks} checks reached")
        if self.seconds_left == 0.0:
            raise BudgetExhausted(
                f"time limit of {self.seconds / 60:.1f} minutes reached"
            )
        self.count()

    def count(self) -> None:
        """Count a check without testing the limits, because it is paid for already."""
        self.checks += 1
