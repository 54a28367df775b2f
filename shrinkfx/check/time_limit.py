"""How long a check may take before it counts as hanging."""

from __future__ import annotations

import math
from collections import deque

from shrinkfx.failure.verdict import Verdict
from shrinkfx.program.candidate import Candidate

_TIMES = 10
_LEAST_S, _MOST_S = 60.0, 600.0

_ENOUGH = 10
"""Checks that must have ended before their time tells what the next may need."""


def time_limit(seconds: float) -> float:
    """Give a check ten times what another took, between 1 and 10 minutes."""
    return min(_MOST_S, max(_LEAST_S, _TIMES * seconds))


class AdaptiveTimeLimit:
    """A time limit that falls as programs shrink, and never rises.

    It goes by the longest of the last checks, and is for what a search asks about:
    candidates no larger than the smallest program that has failed so far.
    """

    def __init__(self, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self._seconds: deque[float] = deque(maxlen=_ENOUGH)
        self._smallest = math.inf

    def covers(self, candidate: Candidate) -> bool:
        """Tell whether the limit is for a candidate of this size."""
        return candidate.cost[0] <= self._smallest

    def learn(self, candidate: Candidate, verdict: Verdict) -> None:
        """Take note of a check; of its time only if it came to its end."""
        if verdict.reproduced:
            self._smallest = min(self._smallest, candidate.cost[0])
        seen = verdict.observation
        if seen.unresolved or seen.invalid:
            return
        self._seconds.append(seen.own_seconds)
        if len(self._seconds) == _ENOUGH:
            limit = time_limit(max(self._seconds))
            self.timeout_s = min(self.timeout_s, limit)
