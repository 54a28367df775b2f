"""What a child and all that it has started do, use and leave behind."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from shrinkfx.own_time import OwnTime
from shrinkfx.processes import (
    Sample,
    descendants,
    kill,
    listed_children,
    pss_bytes,
    rss_bytes,
    sample,
)
from shrinkfx.protocol.requests import Request

_KILL_S = 30.0
_LAST_WORDS_S = 5.0
_TICK_S = 0.05


@dataclass
class Watch:
    """A child, all that it started, and what they have used so far.

    Attributes:
        apart: other children, with all that they have started: servers of their own.
        below: what lived below this process when somebody last looked.
    """

    child: int
    apart: set[int] = field(default_factory=set)
    status: int | None = None
    cpu_seconds: float = 0.0
    peak_rss_bytes: int = 0
    below: tuple[int, ...] = ()

    def reap(self) -> bool:
        """Collect whatever has ended below this process; False: nothing is left."""
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid in self.apart:
                self.apart.discard(pid)  # the next one of this number is another's
                continue
            self.cpu_seconds += usage.ru_utime + usage.ru_stime
            self.peak_rss_bytes = max(self.peak_rss_bytes, usage.ru_maxrss * 1024)
            if pid == self.child:
                self.status = status

    def look(self) -> Sample:
        """See what everything below this process does, and what it has used so far."""
        self.reap()
        self.below = self._found()
        seen = sample(self.below)
        return replace(seen, cpu_seconds=self.cpu_seconds + seen.cpu_seconds)

    def exceeds(self, limit_bytes: int) -> bool:
        """Tell whether all that lives below this process holds more than that.

        What has started since somebody last looked is not seen yet. Resident sets
        count a page that forks share once for each of them; only where that makes a
        difference is it worth asking for the exact share.
        """
        total = sum(map(rss_bytes, {self.child, *self.below}))
        if total > limit_bytes:
            # What has ended may have left its number to a process of somebody else.
            total = sum(map(pss_bytes, self._found()))
        self.peak_rss_bytes = max(self.peak_rss_bytes, total)
        return total > limit_bytes

    def abort(self) -> None:
        """Have the child say where it is: faulthandler answers with its frames."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.child, signal.SIGABRT)
        deadline = time.monotonic() + _LAST_WORDS_S
        while self.status is None and time.monotonic() < deadline:
            self.reap()
            time.sleep(0.002)

    def kill_all(self) -> None:
        """Kill until nothing is left; what forks meanwhile is met next round."""
        deadline = time.monotonic() + _KILL_S
        while self.reap() and time.monotonic() < deadline:
            found = self._found()
            if self.apart and not found and not self._found():  # a list may have gaps
                return
            for pid in found:
                kill(pid)
            time.sleep(0.002)

    def _found(self) -> tuple[int, ...]:
        """Look for what lives below this process now, but for what is apart."""
        if not self.apart:
            return tuple(descendants(os.getpid()))
        children = listed_children()
        return tuple(
            descendants(
                os.getpid(),
                lambda pid: [c for c in children(pid) if c not in self.apart],
            )
        )


class _End:
    """The end of a child, for which one can wait."""

    def __init__(self, child: int) -> None:
        self._poll = select.poll()
        self._descriptor: int | None = None
        self._pause_s = 0.002
        # There is none before Linux 5.3, nor where a filter of system calls forbids it.
        with contextlib.suppress(AttributeError, OSError):
            self._descriptor = os.pidfd_open(child)
            self._poll.register(self._descriptor, select.POLLIN)

    def wait(self) -> None:
        """Return at the end of the child, or after ``_TICK_S``."""
        if self._descriptor is None:
            time.sleep(self._pause_s)
            self._pause_s = min(_TICK_S, self._pause_s * 1.5)
        elif self._poll.poll(_TICK_S * 1000):
            self.close()  # it has ended; what a debugger holds is reaped later, though

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def wait(
    watch: Watch, own: OwnTime, request: Request, cancelled: Callable[[], bool]
) -> tuple[str, int]:
    """Wait until a child ends or breaks a limit; say how, and with what code."""
    with contextlib.closing(_End(watch.child)) as end:
        while True:
            watch.reap()
            if watch.status is not None:
                code = os.waitstatus_to_exitcode(watch.status)
                return ("signal", -code) if code < 0 else ("exit", code)
            if how := _broken(watch, own, request, cancelled):
                return how, 0
            end.wait()


def _broken(
    watch: Watch, own: OwnTime, request: Request, cancelled: Callable[[], bool]
) -> str:
    """Name what keeps a child from going on; '' if nothing does."""
    if not os.path.exists(f"/proc/{watch.child}"):
        return "lost"
    if cancelled():
        return "cancelled"
    hangs = own.exceeds(request.timeout_s)
    watch.reap()
    if watch.status is not None:
        return ""  # to look takes time, and it has ended meanwhile
    if hangs:
        return "timeout"
    if own.passed_s > request.most_s:
        return "late"
    return "memory" if watch.exceeds(request.max_rss_bytes) else ""
