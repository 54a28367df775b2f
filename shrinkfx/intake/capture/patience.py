"""Decide when a script hangs: only inside a step in PyTorch, never between steps.

A server that waits for requests does not hang. A step hangs if its processes use no
CPU, read nothing and write nothing for a minute. A busy call may take ten minutes of
its own time; a busy compilation has no limit. ``--timeout`` limits the own time of any
step.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from shrinkfx.intake.capture.records import CALL, Step
from shrinkfx.system.own_time import OwnTime
from shrinkfx.system.processes import Sample, list_descendants, sample_processes

ASLEEP_S, BUSY_CALL_S = 60.0, 600.0
"""Limits in seconds of an idle step and of a busy call.

A check of a small program, and one of the largest programs, may take as long.
"""

_IDLE_CPU_S = 0.05
"""CPU seconds that idle threads may use between two looks."""

Key = tuple[int, str, int]


@dataclass
class _Watched:
    """A step, and the time of its last known activity."""

    own: OwnTime
    since: float
    cpu_seconds: float = 0.0
    moved: int = 0


@dataclass
class HangDetector:
    """Finds the steps that hang.

    Attributes:
        timeout_s: the value of ``--timeout``, or None.
        waited_s: seconds that the last hanging step was waited for.
    """

    timeout_s: float | None = None
    clock: Callable[[], float] = time.monotonic
    look: Callable[[int], Sample] = lambda pid: sample_processes(
        [pid, *list_descendants(pid)]
    )
    moved: Callable[[int], int] = lambda pid: bytes_moved(pid)
    asleep_s: float = ASLEEP_S
    waited_s: float = 0.0
    _watched: dict[Key, _Watched] = field(default_factory=dict)

    def find_hanging_step(self, steps: Sequence[Step]) -> Step | None:
        """Return a step that hangs, or None.

        Args:
            steps: all steps that have not ended.
        """
        keys = {_key(step) for step in steps}
        for ended in self._watched.keys() - keys:
            del self._watched[ended]
        return next((step for step in steps if self._hangs(step)), None)

    def _hangs(self, step: Step) -> bool:
        watched = self._watched.get(_key(step))
        if watched is None:
            own_time = OwnTime(lambda: self.look(step.pid), clock=self.clock)
            self._watched[_key(step)] = _Watched(own_time, self.clock())
            return False
        limit = self.timeout_s or (BUSY_CALL_S if step.what == CALL else None)
        if limit is not None and watched.own.exceeds(limit):
            self.waited_s = watched.own.seconds
            return True
        return self.timeout_s is None and self._sleeps(step, watched)

    def _sleeps(self, step: Step, watched: _Watched) -> bool:
        """Return whether a step is idle; look rarely, because a look is expensive."""
        if self.clock() - watched.since < self.asleep_s:
            return False
        seen, moved = self.look(step.pid), self.moved(step.pid)
        used = seen.cpu_seconds - watched.cpu_seconds
        idle = seen.is_asleep and used < _IDLE_CPU_S and moved == watched.moved
        self.waited_s = self.clock() - watched.since
        watched.since, watched.cpu_seconds = self.clock(), seen.cpu_seconds
        watched.moved = moved
        return idle


def _key(step: Step) -> Key:
    return step.pid, step.what, step.at


def bytes_moved(pid: int) -> int:
    """Return the bytes that a process has read and written, including pipes."""
    try:
        lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    except OSError:
        return 0
    counters = dict(line.split(": ") for line in lines)
    return int(counters.get("rchar", 0)) + int(counters.get("wchar", 0))
