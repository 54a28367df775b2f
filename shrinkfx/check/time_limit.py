"""The time limit after which a check counts as a hang."""

from __future__ import annotations

import math
from collections import deque

from shrinkfx.failure.verdict import Verdict
from shrinkfx.program.candidate import Candidate

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
