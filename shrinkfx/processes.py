"""What runs below a process, as ``/proc`` shows it."""

from __future__ import annotations

import contextlib
import functools
import math
import os
import signal
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from shrinkfx.cgroups import cgroups

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGESIZE")

# Fields of /proc/PID/stat, counted from behind the name, which may hold anything.
_STATE, _PARENT, _THREADS = 0, 1, 17
_TIMES = slice(11, 15)
"""utime, stime, and those of children that it has waited for."""


@dataclass(frozen=True)
class Sample:
    """What some processes are doing at one moment, and what they have used so far.

    Attributes:
        cpu_seconds: those of the processes, and of children that they waited for.
        runnable: threads that run, or wait for a core.
        on_disk: threads that wait for a disk, or for anything else that no signal ends.
    """

    cpu_seconds: float = 0.0
    runnable: int = 0
    on_disk: int = 0

    @property
    def sleeps(self) -> bool:
        """Nothing would go on if there were more cores, or faster disks."""
        return not (self.runnable or self.on_disk)


def usable_cores(root: Path = Path("/")) -> int:
    """Count the cores that this process may use, within the limits of its cgroups.

    Args:
        root: where ``proc`` and ``sys`` are.
    """
    here = float(len(os.sched_getaffinity(0)))
    for folder, version in cgroups(root, "cpu"):
        with contextlib.suppress(OSError, ValueError):  # "max" is no limit
            here = min(here, _quota(folder, version))
    return max(1, math.ceil(here))


def _quota(folder: Path, version: int) -> float:
    """Read how many cores' worth of time a cgroup has."""
    if version == 2:
        quota, period = (folder / "cpu.max").read_text().split()
    else:
        quota = (folder / "cpu.cfs_quota_us").read_text()
        period = (folder / "cpu.cfs_period_us").read_text()
    return int(quota) / int(period) if int(quota) > 0 else math.inf


def runnable_here() -> int:
    """Count what runs or waits for a core on the whole machine, but for who asks.

    It is 0 where the kernel does not say.
    """
    with contextlib.suppress(OSError, ValueError, IndexError):
        text = Path("/proc/loadavg").read_text()
        return int(text.split()[3].partition("/")[0]) - 1
    return 0


def sample(pids: Iterable[int]) -> Sample:
    """Look at processes; those that have ended meanwhile count for nothing."""
    ticks, states = 0, b""
    for pid in pids:
        if not (stat := _stat(f"/proc/{pid}/stat")):
            continue
        ticks += sum(map(int, stat[_TIMES]))
        # The state is that of the first thread.
        alone = stat[_THREADS] in (b"0", b"1")
        states += stat[_STATE] if alone else b"".join(_states_of_threads(pid))
    return Sample(ticks / _TICKS_PER_S, states.count(b"R"), states.count(b"D"))


def state_of(pid: int) -> str:
    """Read the state of a process's first thread: ``S`` say; '' if it is gone."""
    stat = _stat(f"/proc/{pid}/stat")
    return stat[_STATE].decode() if stat else ""


def _states_of_threads(pid: int) -> Iterator[bytes]:
    threads: list[str] = []
    with contextlib.suppress(OSError):
        threads = os.listdir(f"/proc/{pid}/task")
    for thread in threads:
        yield from _stat(f"/proc/{pid}/task/{thread}/stat")[:1]


Children = Callable[[int], Iterable[int]]
"""Tells the children of a process, dead ones that nobody waited for too."""


def descendants(pid: int, children: Children | None = None) -> Iterator[int]:
    """Yield every process below ``pid``, dead ones that nobody waited for too.

    One that ends meanwhile may hide those below it: they have another parent by then,
    and are met next time.

    Args:
        children: whom to ask; None for what costs least on this kernel.
    """
    children = children or listed_children()
    stack, met = [pid], {pid}
    while stack:
        for below in children(stack.pop()):
            if below not in met:
                met.add(below)
                stack.append(below)
                yield below


def listed_children() -> Children:
    """Choose what costs least on this kernel."""
    return told_children if kernel_tells() else scanned_children()


@functools.cache
def kernel_tells() -> bool:
    """Tell whether the kernel lists the children of a process: most are built so."""
    return os.path.exists(f"/proc/thread-self/{_CHILDREN}")


_CHILDREN = "children"


def told_children(pid: int) -> Iterator[int]:
    """Have the kernel tell. What else the machine runs makes this no dearer.

    Each thread has those that it has started.
    """
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            told = _read(f"/proc/{pid}/task/{thread}/{_CHILDREN}")
            yield from map(int, told.split())


def scanned_children() -> Children:
    """Look at all processes of the machine, where the kernel tells nothing."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit() and (stat := _stat(f"/proc/{entry}/stat")):
            children.setdefault(int(stat[_PARENT]), []).append(int(entry))
    return lambda pid: children.get(pid, ())


def _stat(path: str) -> list[bytes]:
    """Read what the kernel says of a process or a thread; nothing if it is gone."""
    return _read(path).rpartition(b")")[2].split(None, _THREADS + 1)


def _read(path: str) -> bytes:
    """Read a file of ``/proc``; nothing if what it tells of is gone.

    That is done some 20 times a second: pathlib takes twice as long.
    """
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read()
    except OSError:
        return b""


def rss_bytes(pid: int) -> int:
    """Read how much of a process is in memory; 0 if it has ended."""
    pages = _read(f"/proc/{pid}/statm").split()[1:2]
    return sum(map(int, pages)) * _PAGE_BYTES


def pss_bytes(pid: int) -> int:
    """Read its share of that, where pages are shared; dearer to ask for."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0
    _, _, share = text.partition("\nPss:")
    return int(share.split()[0]) * 1024 if share else 0


def kill(pid: int) -> None:
    """Kill a process and its group.

    A group dies at once. One by one, a chain of processes that each fork the
    next and end is never caught: its dead, not yet waited for, name the group.
    """
    with contextlib.suppress(ProcessLookupError, PermissionError):
        group = os.getpgid(pid)
        if group != os.getpgrp():
            os.killpg(group, signal.SIGKILL)
        os.kill(pid, signal.SIGKILL)
