"""Limits of checks: the run's time budget, the time limit, jobs, and a busy machine."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from typing import Protocol

from shrinkfx.failure.verdict import Verdict
from shrinkfx.program.candidate import Candidate
from shrinkfx.protocol.answers import Ending
from shrinkfx.system.processes import count_usable_cores


class Allowance(Protocol):
    """The remaining time of a run, which all its phases share."""

    def has(self, seconds: float) -> bool:
        """Tell whether so many seconds are left beyond the reserve for the repro."""
        ...

    def share(self) -> float:
        """Return the seconds that an optional phase may take."""
        ...

    def keep(self, check_s: float) -> None:
        """Reserve the time for a repro, given the seconds of a check of the program."""
        ...


class Unlimited:
    """The budget of a run without ``--max-minutes``."""

    def has(self, seconds: float) -> bool:
        return True

    def share(self) -> float:
        return math.inf

    def keep(self, check_s: float) -> None:
        pass


UNLIMITED = Unlimited()


_FACTOR = 10
_LEAST_S, _MOST_S = 60.0, 600.0

_MIN_CHECKS = 10
"""The number of checks that must have ended before their times set the limit."""


def time_limit(seconds: float) -> float:
    """Return ten times the seconds of another check, between 1 and 10 minutes."""
    return min(_MOST_S, max(_LEAST_S, _FACTOR * seconds))


class AdaptiveTimeLimit:
    """A time limit that falls as programs shrink, and never rises.

    It follows the longest of the last checks, and is for the candidates of a search:
    those no larger than the smallest program that has failed so far.
    """

    def __init__(self, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self._seconds: deque[float] = deque(maxlen=_MIN_CHECKS)
        self._smallest = math.inf

    def covers(self, candidate: Candidate) -> bool:
        """Tell whether the limit is for a candidate of this size."""
        return candidate.cost[0] <= self._smallest

    def learn(self, candidate: Candidate, verdict: Verdict) -> None:
        """Record a check; its time counts only if it came to its end."""
        if verdict.reproduced:
            self._smallest = min(self._smallest, candidate.cost[0])
        seen = verdict.observation
        if seen.unresolved or seen.invalid:
            return
        self._seconds.append(seen.own_seconds)
        if len(self._seconds) == _MIN_CHECKS:
            limit = time_limit(max(self._seconds))
            self.timeout_s = min(self.timeout_s, limit)


_LEAST_WAIT_S = 5.0
"""The shortest wait worth a report; it must also be half of the check's time."""


class BusyNotice:
    """Watches how long checks waited for a core, and reports it once.

    Args:
        note: takes the message.
        cores: the number of cores; None for this machine's.
    """

    def __init__(self, note: Callable[[str], None], cores: int | None = None) -> None:
        self._note, self._cores = note, cores or count_usable_cores()
        self._was_noted = False

    def record_ending(self, ending: Ending) -> None:
        """Record how long a check has waited."""
        waited = ending.waited_s >= max(_LEAST_WAIT_S, ending.seconds / 2)
        if self._was_noted or not waited or ending.runnable <= self._cores:
            return
        self._was_noted = True
        self._note(
            f"the machine is busy ({ending.runnable} runnable processes on "
            f"{self._cores} cores): a check took {ending.seconds:.0f} s, of which it "
            f"waited {ending.waited_s:.0f} s for a core; --timeout does not include "
            "waiting"
        )


MOST = 4
"""The maximum, because answers to further speculative queries are rarely used."""


def usual_jobs(cores: int | None = None) -> int:
    """Return half of the cores, at most ``MOST``.

    The other half is for compilers and programs, which have threads of their own.

    Args:
        cores: None for the cores that this process may use.

    >>> [usual_jobs(cores) for cores in (1, 2, 4, 16)]
    [1, 1, 2, 4]
    """
    half = (count_usable_cores() if cores is None else cores) // 2
    return max(1, min(MOST, half))


def jobs_that_fit(peak_bytes: int, free_bytes: int) -> int:
    """Return how many checks fit into memory at once; at least 1.

    Args:
        peak_bytes: the peak memory of a check of the input program.
        free_bytes: the memory available for checks.

    >>> jobs_that_fit(3 << 30, 16 << 30)
    5
    """
    return max(1, free_bytes // max(1, peak_bytes))
