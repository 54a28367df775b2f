"""How long work takes, without what it waits for a busy machine.

A program that does not end and one that gets no core look alike to a clock. What
tells them apart is what the time went into:

    some thread runs     CPU-seconds, of as many threads as can run at once
    nothing can run      all of it between two looks that find it so: it sleeps, and
                         no machine is too slow for that
    threads wait for a   none: the machine is busy, with other work or with more
    core, or for a disk  threads of this one than it has cores
"""

from __future__ import annotations

import time
from collections.abc import Callable

from shrinkfx.processes import Sample, runnable_here, usable_cores

_EVERY_S = 0.5
"""CPU-seconds are counted in hundredths; and each look costs some."""

_UNSEEN_S = 2.0
"""Sleep that is believed between two looks. A machine that stops this process, which
looks, may have stopped the other as well."""


class OwnTime:
    """Counts the seconds that work would have taken with the machine to itself.

    It may count too few of them where work runs and sleeps by turns within half a
    second, never more than have passed.

    Args:
        look: says what the processes do that are at it.
        clock: tells the time.
        cores: how many threads can run at once; None for this machine's.
        crowd: counts what is runnable on the machine; asked where it is busy.

    Attributes:
        waited_s: what does not count.
        runnable: on the machine, on average, while the work has waited.
    """

    def __init__(
        self,
        look: Callable[[], Sample],
        *,
        clock: Callable[[], float] = time.monotonic,
        cores: int | None = None,
        crowd: Callable[[], int] = runnable_here,
    ) -> None:
        self._look, self._clock, self._crowd = look, clock, crowd
        self._cores = cores or usable_cores()
        self._began = self._looked = clock()
        self._cpu_seconds, self._slept = 0.0, False
        self._counts: list[int] = []
        self.waited_s = 0.0

    @property
    def passed_s(self) -> float:
        """Seconds by the clock."""
        return self._clock() - self._began

    @property
    def seconds(self) -> float:
        """Seconds that count."""
        return self.passed_s - self.waited_s

    @property
    def runnable(self) -> int:
        return round(sum(self._counts) / max(1, len(self._counts)))

    def exceeds(self, limit_s: float) -> bool:
        """Tell whether the work has taken longer; looks at it, now and then."""
        late = self.seconds > limit_s
        if late or self._clock() - self._looked >= _EVERY_S:
            self._take(self._look())
        return late and self.seconds > limit_s

    def _take(self, seen: Sample) -> None:
        """Learn what the time since the last look went into."""
        now = self._clock()
        passed, self._looked = now - self._looked, now
        used = max(0.0, seen.cpu_seconds - self._cpu_seconds)
        self._cpu_seconds = seen.cpu_seconds
        abreast = min(max(1, seen.runnable), self._cores)
        own = used / abreast
        if seen.sleeps and self._slept:
            own = max(own, min(passed, _UNSEEN_S))
        self._slept = seen.sleeps
        waited = max(0.0, passed - own)
        self.waited_s += waited
        if waited > passed / 2:
            self._counts.append(self._crowd())
