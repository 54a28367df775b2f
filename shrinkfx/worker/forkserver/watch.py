"""Watch a child and its descendants: their state, resource use and limits."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from shrinkfx.protocol.requests import Request
from shrinkfx.system.own_time import OwnTime
from shrinkfx.system.processes import (
    Sample,
    choose_children_lookup,
    kill_with_group,
    list_descendants,
    read_pss_bytes,
    read_rss_bytes,
    sample_processes,
)

_KILL_S = 30.0
_LAST_WORDS_S = 5.0
_TICK_S = 0.05


@dataclass
class Watch:
    """A child, its descendants, and what they have used so far.

    Attributes:
        child: the process id of the child.
        unwatched: ids of other children, which are not watched, such as forked servers.
        status: the wait status of the child; None while it runs.
        cpu_seconds: the CPU time of descendants that have ended.
        peak_rss_bytes: the most memory that was seen in use.
        below: ids of the descendants at the last look.
    """

    child: int
    unwatched: set[int] = field(default_factory=set)
    status: int | None = None
    cpu_seconds: float = 0.0
    peak_rss_bytes: int = 0
    below: tuple[int, ...] = ()

    def reap(self) -> bool:
        """Reap all descendants that have ended; return False if none is left."""
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid in self.unwatched:
                self.unwatched.discard(pid)  # the number may be reused
                continue
            self.cpu_seconds += usage.ru_utime + usage.ru_stime
            self.peak_rss_bytes = max(self.peak_rss_bytes, usage.ru_maxrss * 1024)
            if pid == self.child:
                self.status = status

    def sample_usage(self) -> Sample:
        """Return a sample of all descendants, with the CPU time used so far."""
        self.reap()
        self.below = self._live_descendants()
        sample = sample_processes(self.below)
        return replace(sample, cpu_seconds=self.cpu_seconds + sample.cpu_seconds)

    def exceeds(self, limit_bytes: int) -> bool:
        """Return whether the descendants use more memory than the limit.

        Processes that started after the last look are not counted. Resident sets count
        a page that forks share once for each of them, so the exact share, which is
        expensive to get, is read only if that sum is above the limit.
        """
        total = sum(map(read_rss_bytes, {self.child, *self.below}))
        if total > limit_bytes:
            # A process that has ended may have left its id to an unrelated process.
            total = sum(map(read_pss_bytes, self._live_descendants()))
        self.peak_rss_bytes = max(self.peak_rss_bytes, total)
        return total > limit_bytes

    def abort(self) -> None:
        """Send SIGABRT to the child, so that faulthandler logs its frames."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.child, signal.SIGABRT)
        deadline = time.monotonic() + _LAST_WORDS_S
        while self.status is None and time.monotonic() < deadline:
            self.reap()
            time.sleep(0.002)

    def kill_all(self) -> None:
        """Kill descendants until none is left, including those forked meanwhile."""
        deadline = time.monotonic() + _KILL_S
        while self.reap() and time.monotonic() < deadline:
            descendants = self._live_descendants()
            if (
                self.unwatched and not descendants and not self._live_descendants()
            ):  # a list may miss some
                return
            for pid in descendants:
                kill_with_group(pid)
            time.sleep(0.002)

    def _live_descendants(self) -> tuple[int, ...]:
        """Return the ids of the live descendants, without those of ``unwatched``."""
        if not self.unwatched:
            return tuple(list_descendants(os.getpid()))
        children = choose_children_lookup()
        return tuple(
            list_descendants(
                os.getpid(),
                lambda pid: [c for c in children(pid) if c not in self.unwatched],
            )
        )


class _End:
    """Waits for the end of a child."""

    def __init__(self, child: int) -> None:
        self._poll = select.poll()
        self._descriptor: int | None = None
        self._pause_s = 0.002
        # Linux before 5.3 has no pidfd_open, and a seccomp filter may forbid it.
        with contextlib.suppress(AttributeError, OSError):
            self._descriptor = os.pidfd_open(child)
            self._poll.register(self._descriptor, select.POLLIN)

    def wait(self) -> None:
        """Return at the end of the child, or after ``_TICK_S``."""
        if self._descriptor is None:
            time.sleep(self._pause_s)
            self._pause_s = min(_TICK_S, self._pause_s * 1.5)
        elif self._poll.poll(_TICK_S * 1000):
            self.close()  # it has ended; with a debugger, it is reaped later

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def wait_for_end(
    watch: Watch, timer: OwnTime, request: Request, cancelled: Callable[[], bool]
) -> tuple[str, int]:
    """Wait until a child ends or breaks a limit; return how, and the exit code."""
    with contextlib.closing(_End(watch.child)) as end:
        while True:
            watch.reap()
            if watch.status is not None:
                code = os.waitstatus_to_exitcode(watch.status)
                return ("signal", -code) if code < 0 else ("exit", code)
            if how := _find_broken_limit(watch, timer, request, cancelled):
                return how, 0
            end.wait()


def _find_broken_limit(
    watch: Watch, timer: OwnTime, request: Request, cancelled: Callable[[], bool]
) -> str:
    """Return the limit that the child breaks, or why it must end; '' if neither."""
    if not os.path.exists(f"/proc/{watch.child}"):
        return "lost"
    if cancelled():
        return "cancelled"
    hangs = timer.exceeds(request.timeout_s)
    watch.reap()
    if watch.status is not None:
        return ""  # looking takes time, and the child has ended meanwhile
    if hangs:
        return "timeout"
    if timer.passed_s > request.wall_clock_limit_s:
        return "late"
    return "memory" if watch.exceeds(request.max_rss_bytes) else ""
