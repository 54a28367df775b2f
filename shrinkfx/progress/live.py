"""The live line of a run: phase, elapsed time, progress, rate and the current step."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterator

from shrinkfx.events import (
    ActivityStarted,
    Event,
    PhaseEntered,
    QueryAnswered,
    QueryStarted,
    RunStarted,
    SearchStarted,
    SizesTried,
    StepTaken,
)

_RATE_OF = 20
"""Number of the last checks over which the displayed rate is averaged."""

_LEAST_RATE_S = 0.05
"""No rate is shown below this mean, because such verdicts come from the journal."""

_LEAST_TRIED = 8
"""The minimum width of the current step in characters; it is omitted if it gets
fewer.
"""


class Live:
    """Collects the events of a run and renders them as one line of the terminal."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = clock()
        self._phase = self._tried = ""
        self._unit, self._count = "check", 0
        self._operators: int | None = None
        self._most: int | None = None
        self._is_checking = False
        self._forget()

    def _forget(self) -> None:
        """Reset the measured rate and time, as for a new phase."""
        self._times: deque[float] = deque(maxlen=_RATE_OF + 1)
        self._expected_s: float | None = None
        self._ends_at: float | None = None

    def take(self, event: Event) -> None:
        """Update the state from an event."""
        match event:
            case RunStarted(_, model):
                self._tried = f"starting PyTorch for {model}"
            case PhaseEntered(phase):
                self._phase, self._tried, self._is_checking = phase, "", False
                self._forget()
            case SearchStarted(operators, max_checks):
                self._unit, self._count = "check", 0
                self._operators, self._most = operators, max_checks
            case QueryStarted(strategy, operators):
                is_smaller = self._operators is None or operators < self._operators
                self._tried = f"{strategy} to {operators}" if is_smaller else strategy
                self._is_checking = True
            case ActivityStarted(text) if not self._is_checking:
                self._tried = text
            case QueryAnswered():
                self._take_check(event)
            case StepTaken(_, after):
                self._operators = after
            case SizesTried(sizes):
                self._unit, self._tried = "example", sizes
                self._count += 1
                self._times.append(self._clock())

    def _take_check(self, event: QueryAnswered) -> None:
        self._count, self._operators = event.check, event.operators
        self._is_checking = False
        self._times.append(event.seconds)
        self._expected_s = event.expected_s
        remaining_s = event.seconds_left
        self._ends_at = None if remaining_s is None else self._clock() + remaining_s

    def text(self, width: int) -> str:
        """Render the line in ``width`` characters; cut the current step first."""
        head, *rest = self._heads()
        space = width - len(head) - 2
        if self._tried and space >= min(_LEAST_TRIED, len(self._tried)):
            return f"{head}: {_cut(self._tried, space)}"
        return next((each for each in (head, *rest) if len(each) <= width), head)[
            :width
        ]

    def _heads(self) -> Iterator[str]:
        """Yield the line without the current step: the full form, then shorter ones."""
        where = f"{self._phase} {self._elapsed()}".lstrip()
        counted = []
        if self._operators is not None:
            counted.append(_counted(self._operators, "operator"))
        if self._count and self._most is not None:
            counted.append(f"{self._count} of {_counted(self._most, self._unit)}")
        elif self._count:
            counted.append(_counted(self._count, self._unit))
        remaining, rate = self._time_left(), self._rate()
        for timed, fast in ((remaining, rate), (remaining, ""), ("", "")):
            details = ", ".join([*counted, *([fast] if fast else [])])
            begin = f"{where}, {timed}" if timed else where
            yield f"{begin}; {details}" if details else begin

    def _elapsed(self) -> str:
        minutes, seconds = divmod(int(self._clock() - self._began), 60)
        hours, minutes = divmod(minutes, 60)
        return (
            f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
        )

    def _rate(self) -> str:
        if len(self._times) < 2:
            return ""
        each = (self._times[-1] - self._times[0]) / (len(self._times) - 1)
        if each < _LEAST_RATE_S:
            return ""
        return f"{each:.1f} s each" if each < 10 else f"{each:.0f} s each"

    def _time_left(self) -> str:
        """Render the expected time of the search, or its time limit if that is less.

        Neither includes the phases after the search.
        """
        limit_s = math.inf if self._ends_at is None else self._ends_at - self._clock()
        if self._expected_s is not None and self._expected_s < limit_s:
            return f"about {format_duration(self._expected_s)} more"
        return (
            f"at most {format_duration(limit_s, up=True)} more"
            if 0 < limit_s < math.inf
            else ""
        )


def format_duration(seconds: float, *, up: bool = False) -> str:
    """Render a duration, to the nearest unit or, with ``up``, rounded up."""
    rounded = math.ceil if up else round
    if seconds < 90:
        return f"{max(1, rounded(seconds / 10)) * 10} s"
    if seconds < 5400:
        return f"{rounded(seconds / 60)} min"
    return f"{rounded(seconds / 360) / 10} h"


def _counted(number: int, unit: str) -> str:
    return f"{number} {unit}" if number == 1 else f"{number} {unit}s"


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 3]}..."
