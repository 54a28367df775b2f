"""The own time of a check: its elapsed time without waiting for a busy machine.

By wall-clock time, a program that hangs and a program that gets no core look the same.
The state of its threads tells them apart, and decides how much of the elapsed time
counts:

    a thread runs        its CPU-seconds; threads that run at the same time count once,
                         up to the number of cores
    all threads sleep    all of the time between two samples that both find this state,
                         because a sleep does not depend on the speed of the machine
    threads wait for a   none: the machine is busy, with other work or with more
    core, or for a disk  threads of the check than it has cores
"""

from __future__ import annotations

import time
from collections.abc import Callable

from shrinkfx.system.processes import Sample, count_runnable_threads, count_usable_cores

_SAMPLE_INTERVAL_S = 0.5
"""Seconds between samples: the kernel counts CPU-seconds in hundredths, and each sample
costs time."""

_MAX_SLEEP_S = 2.0
"""Maximum number of seconds of sleep to count between two samples. If more time has
passed, the machine may have stopped this process, and with it the observed one."""


class OwnTime:
    """Counts the seconds that work would have taken on an idle machine.

    The count may be too low if the work alternates between running and sleeping within
    half a second. It is never more than the elapsed time.

    Args:
        look: samples the processes that do the work.
        clock: returns the time in seconds.
        cores: number of threads that can run at once; None means the usable cores.
        crowd: counts the runnable threads of the machine; called while the work waits.

    Attributes:
        waited_s: seconds that do not count, because the work waited.
    """

    def __init__(
        self,
        look: Callable[[], Sample],
        *,
        clock: Callable[[], float] = time.monotonic,
        cores: int | None = None,
        crowd: Callable[[], int] = count_runnable_threads,
    ) -> None:
        self._look, self._clock, self._crowd = look, clock, crowd
        self._cores = cores or count_usable_cores()
        self._began = self._looked = clock()
        self._cpu_seconds, self._slept = 0.0, False
        self._counts: list[int] = []
        self.waited_s = 0.0

    @property
    def passed_s(self) -> float:
        """Elapsed seconds."""
        return self._clock() - self._began

    @property
    def seconds(self) -> float:
        """Elapsed seconds that count."""
        return self.passed_s - self.waited_s

    @property
    def runnable(self) -> int:
        return round(sum(self._counts) / max(1, len(self._counts)))

    def exceeds(self, limit_s: float) -> bool:
        """Return whether the work has taken longer than a limit in seconds.

        This samples the processes if the last sample is ``_EVERY_S`` old, or if the
        limit seems to be exceeded.
        """
        is_over = self.seconds > limit_s
        if is_over or self._clock() - self._looked >= _SAMPLE_INTERVAL_S:
            self._count_sample(self._look())
        return is_over and self.seconds > limit_s

    def _count_sample(self, seen: Sample) -> None:
        """Count the time since the last sample, by the state of the threads."""
        now = self._clock()
        passed, self._looked = now - self._looked, now
        used = max(0.0, seen.cpu_seconds - self._cpu_seconds)
        self._cpu_seconds = seen.cpu_seconds
        parallel = min(max(1, seen.runnable), self._cores)
        own_s = used / parallel
        if seen.is_asleep and self._slept:
            own_s = max(own_s, min(passed, _MAX_SLEEP_S))
        self._slept = seen.is_asleep
        waited = max(0.0, passed - own_s)
        self.waited_s += waited
        if waited > passed / 2:
            self._counts.append(self._crowd())
