"""What a child and all that it has started do, use and leave behind."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from shrinkfx.own_time import OwnTime
from shrinkfx.processes import Sample, descendants, kill, pss_bytes, rss_bytes, sample
from shrinkfx.protocol.requests import Request

_KILL_S = 30.0
_LAST_WORDS_S = 5.0


@dataclass
class Watch:
    """A child, all that it started, and what they have used so far."""

    child: int
    status: int | None = None
    cpu_seconds: float = 0.0
    peak_rss_bytes: int = 0

    def reap(self) -> bool:
        """Collect whatever has ended below this process; False: nothing is left."""
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            self.cpu_seconds += usage.ru_utime + usage.ru_stime
            self.peak_rss_bytes = max(self.peak_rss_bytes, usage.ru_maxrss * 1024)
            if pid == self.child:
                self.status = status

    def look(self) -> Sample:
        """See what everything below this process does, and what it has used so far."""
        self.reap()
        below = sample(descendants(os.getpid()))
        used = self.cpu_seconds + below.cpu_seconds
        return replace(below, cpu_seconds=used)

    def exceeds(self, limit_bytes: int) -> bool:
        """Tell whether all that lives below this process holds more than that.

        Resident sets count a page that forks share once for each of them; only
        where that makes a difference is it worth asking for the exact share.
        """
        below = list(descendants(os.getpid()))
        total = sum(map(rss_bytes, below))
        if total > limit_bytes:
            total = sum(map(pss_bytes, below))
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
            for pid in descendants(os.getpid()):
                kill(pid)
            time.sleep(0.002)


def wait(
    watch: Watch, own: OwnTime, request: Request, cancelled: Callable[[], bool]
) -> tuple[str, int]:
    """Wait until a child ends or breaks a limit; say how, and with what code."""
    pause = 0.002
    while True:
        watch.reap()
        if watch.status is not None:
            code = os.waitstatus_to_exitcode(watch.status)
            return ("signal", -code) if code < 0 else ("exit", code)
        if not Path(f"/proc/{watch.child}").exists():
            return "lost", 0
        if cancelled():
            return "cancelled", 0
        hangs = own.exceeds(request.timeout_s)
        watch.reap()
        if watch.status is not None:
            continue  # to look takes time, and it has ended meanwhile
        if hangs:
            return "timeout", 0
        if own.passed_s > request.most_s:
            return "late", 0
        if watch.exceeds(request.max_rss_bytes):
            return "memory", 0
        time.sleep(pause)
        pause = min(0.05, pause * 1.5)
