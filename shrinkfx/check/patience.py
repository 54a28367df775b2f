"""How long a check may take before it counts as hanging."""

from __future__ import annotations

from collections import deque

from shrinkfx.failure.verdict import Verdict

_TIMES = 10
_LEAST_S, _MOST_S = 60.0, 600.0

_ENOUGH = 10
"""Checks that must have ended before their time tells what the next may need."""


def time_limit(seconds: float) -> float:
    """Give a check ten times what another took, between 1 and 10 minutes."""
    return min(_MOST_S, max(_LEAST_S, _TIMES * seconds))


class Patience:
    """A time limit that falls as programs shrink, and never rises.

    It goes by the longest of the last checks: what is asked about is no larger than
    the smallest program that has failed so far, or little.
    """

    def __init__(self, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self._seconds: deque[float] = deque(maxlen=_ENOUGH)

    def learn(self, verdict: Verdict) -> None:
        """Take note of a check, unless it did not come to its end."""
        seen = verdict.observation
        if seen.unresolved or seen.invalid:
            return
        self._seconds.append(seen.seconds)
        if len(self._seconds) == _ENOUGH:
            limit = time_limit(max(self._seconds))
            self.timeout_s = min(self.timeout_s, limit)
