"""Processes, memory and cores: what a process uses, and what the machine has."""

from __future__ import annotations

import contextlib
import functools
import math
import os
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from resource import RUSAGE_CHILDREN, RUSAGE_SELF, getrusage

_V2 = ("memory.max", "memory.current", "inactive_file")
_V1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


def estimate_available_bytes(root: Path = Path("/")) -> int:
    """Estimate the available memory in bytes, within the cgroup limits of this process.

    Args:
        root: folder that contains ``proc`` and ``sys``.
    """
    limits = [_read_machine_memory(root)]
    for folder, version in list_cgroups(root, "memory"):
        names = _V2 if version == 2 else _V1
        with suppress(OSError, ValueError, KeyError):  # "max" is no limit
            limits.append(_read_cgroup_memory(folder, *names))
    return max(0, min(limits))


def _read_machine_memory(root: Path) -> int:
    fields = _read_fields(root / "proc/meminfo", ":")
    return int(fields["MemAvailable"].split()[0]) * 1024


def _read_cgroup_memory(folder: Path, limit: str, used: str, reclaimable: str) -> int:
    """Return the memory in bytes that a cgroup may still allocate.

    Inactive pages of the file cache count as available, because the kernel can reclaim
    them.
    """
    cache = int(_read_fields(folder / "memory.stat", " ")[reclaimable])
    taken = int((folder / used).read_text()) - cache
    return int((folder / limit).read_text()) - taken


def _read_fields(path: Path, separator: str) -> dict[str, str]:
    lines = path.read_text(encoding="ascii").splitlines()
    return {k: v for k, _, v in (line.partition(separator) for line in lines)}


def list_cgroups(root: Path, controller: str) -> Iterator[tuple[Path, int]]:
    """Yield the folder and the version (1 or 2) of each cgroup of this process.

    The cgroup of the process comes first, then its ancestors.

    Args:
        root: folder that contains ``proc`` and ``sys``.
        controller: the limited resource: ``memory`` or ``cpu``.
    """
    with suppress(OSError):
        for line in (root / "proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if not controllers:
                base, version = root / "sys/fs/cgroup", 2
            elif controller in controllers.split(","):
                base, version = root / "sys/fs/cgroup" / controller, 1
            else:
                continue
            # In a cgroup namespace, the path may be that outside the namespace; then
            # only the root of the hierarchy exists here, which is the last folder.
            parts = Path(path.strip("/")).parts
            for end in range(len(parts), -1, -1):
                yield base.joinpath(*parts[:end]), version


_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGESIZE")

# Fields of /proc/PID/stat, counted after the name, which may contain any character.
_STATE, _PARENT, _THREADS = 0, 1, 17
_TIMES = slice(11, 15)
"""utime and stime of the process, and of the children that it has waited for."""


@dataclass(frozen=True)
class Sample:
    """The state of some processes at one moment, and their use of the CPU so far.

    Attributes:
        cpu_seconds: CPU-seconds of the processes and of the children that they waited
            for.
        runnable: number of threads that run, or wait for a core.
        on_disk: number of threads in uninterruptible sleep, mostly waiting for a disk.
    """

    cpu_seconds: float = 0.0
    runnable: int = 0
    on_disk: int = 0

    @property
    def is_asleep(self) -> bool:
        """Whether all threads sleep; more cores or faster disks would not help."""
        return not (self.runnable or self.on_disk)


def count_usable_cores(root: Path = Path("/")) -> int:
    """Count the cores that this process may use, within its cgroup limits.

    Args:
        root: folder that contains ``proc`` and ``sys``.
    """
    cores = float(len(os.sched_getaffinity(0)))
    for folder, version in list_cgroups(root, "cpu"):
        with contextlib.suppress(OSError, ValueError):  # "max" is no limit
            cores = min(cores, _read_quota(folder, version))
    return max(1, math.ceil(cores))


def _read_quota(folder: Path, version: int) -> float:
    """Read the CPU quota of a cgroup, in cores; infinite without a quota."""
    if version == 2:
        quota, period = (folder / "cpu.max").read_text().split()
    else:
        quota = (folder / "cpu.cfs_quota_us").read_text()
        period = (folder / "cpu.cfs_period_us").read_text()
    return int(quota) / int(period) if int(quota) > 0 else math.inf


def count_runnable_threads() -> int:
    """Count the runnable threads of the machine, without the calling thread.

    Returns:
        0 if the kernel does not report the number.
    """
    with contextlib.suppress(OSError, ValueError, IndexError):
        text = Path("/proc/loadavg").read_text()
        return int(text.split()[3].partition("/")[0]) - 1
    return 0


def sample_processes(pids: Iterable[int]) -> Sample:
    """Sample processes; those that have ended are skipped."""
    ticks, states = 0, b""
    for pid in pids:
        if not (stat := _read_stat(f"/proc/{pid}/stat")):
            continue
        ticks += sum(map(int, stat[_TIMES]))
        # This state is only that of the first thread.
        is_single = stat[_THREADS] in (b"0", b"1")
        states += stat[_STATE] if is_single else b"".join(_read_thread_states(pid))
    return Sample(ticks / _TICKS_PER_S, states.count(b"R"), states.count(b"D"))


def read_process_state(pid: int) -> str:
    """Return the state of a process's first thread, such as ``S``; '' if it ended."""
    stat = _read_stat(f"/proc/{pid}/stat")
    return stat[_STATE].decode() if stat else ""


def _read_thread_states(pid: int) -> Iterator[bytes]:
    threads: list[str] = []
    with contextlib.suppress(OSError):
        threads = os.listdir(f"/proc/{pid}/task")
    for thread in threads:
        yield from _read_stat(f"/proc/{pid}/task/{thread}/stat")[:1]


Children = Callable[[int], Iterable[int]]
"""Returns the children of a process, including zombies."""


def list_descendants(pid: int, children: Children | None = None) -> Iterator[int]:
    """Yield the descendants of a process, including zombies.

    If a process ends during the traversal, its descendants may be missed, because they
    have another parent by then; the next call finds them.

    Args:
        children: returns the children of a process; None means the cheapest way on this
            kernel.
    """
    children = children or choose_children_lookup()
    stack, seen = [pid], {pid}
    while stack:
        for child in children(stack.pop()):
            if child not in seen:
                seen.add(child)
                stack.append(child)
                yield child


def choose_children_lookup() -> Children:
    """Return the cheapest way to find children on this kernel."""
    return list_children_by_kernel if kernel_lists_children() else scan_children()


@functools.cache
def kernel_lists_children() -> bool:
    """Return whether the kernel lists the children of a process, as most kernels do."""
    return os.path.exists(f"/proc/thread-self/{_CHILDREN}")


_CHILDREN = "children"


def list_children_by_kernel(pid: int) -> Iterator[int]:
    """Yield the children of a process as the kernel lists them.

    The cost does not depend on the other processes of the machine. The kernel lists the
    children of each thread separately.
    """
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            children = _read_proc_file(f"/proc/{pid}/task/{thread}/{_CHILDREN}")
            yield from map(int, children.split())


def scan_children() -> Children:
    """Find children by their parents, in one scan of all processes of the machine.

    This works on kernels that do not list children.
    """
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit() and (stat := _read_stat(f"/proc/{entry}/stat")):
            children.setdefault(int(stat[_PARENT]), []).append(int(entry))
    return lambda pid: children.get(pid, ())


def _read_stat(path: str) -> list[bytes]:
    """Read the fields of a ``stat`` file after the name; [] if the process ended."""
    return _read_proc_file(path).rpartition(b")")[2].split(None, _THREADS + 1)


def _read_proc_file(path: str) -> bytes:
    """Read a file of ``/proc``; b"" if the process or thread ended.

    This does not use pathlib, which takes twice as long, because it runs some 20 times
    a second.
    """
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read()
    except OSError:
        return b""


def read_rss_bytes(pid: int) -> int:
    """Return the resident memory of a process in bytes; 0 if it ended."""
    pages = _read_proc_file(f"/proc/{pid}/statm").split()[1:2]
    return sum(map(int, pages)) * _PAGE_BYTES


def read_pss_bytes(pid: int) -> int:
    """Return the proportional share of a process's resident memory in bytes.

    Shared pages are divided among the processes that map them. This is slower than
    ``read_rss_bytes``. The result is 0 if the process ended or cannot be read.
    """
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0
    _, _, share = text.partition("\nPss:")
    return int(share.split()[0]) * 1024 if share else 0


def kill_with_group(pid: int) -> None:
    """Kill a process and its process group.

    The processes of a group die at once. A chain of processes that each fork the next
    one and end could outrun kills of single processes, but its zombies still identify
    the group.
    """
    with contextlib.suppress(ProcessLookupError, PermissionError):
        group = os.getpgid(pid)
        if group != os.getpgrp():
            os.killpg(group, signal.SIGKILL)
        os.kill(pid, signal.SIGKILL)


class ProcessState:
    """State of this process that decides which CPU time counts for a run.

    Attributes:
        unclaimed: whether the CPU time so far, mostly of imports, counts for the next
            run. The command line sets this, because its process exists only for a run.
    """

    unclaimed = False


def measure_own_cpu_s() -> float:
    """Return the CPU-seconds of this process and of its children that have ended."""
    usages = (getrusage(scope) for scope in (RUSAGE_SELF, RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def measure_tree_cpu_s() -> float:
    """Return the CPU-seconds of this process, of ended children and of descendants.

    An ended child counts only if its parent has waited for it. The values of living
    descendants have a resolution of a hundredth of a second.
    """
    return (
        measure_own_cpu_s()
        + sample_processes(list_descendants(os.getpid())).cpu_seconds
    )


def measure_earlier_cpu_s() -> float:
    """Return the CPU-seconds so far that do not count for a run that begins now."""
    if ProcessState.unclaimed:
        ProcessState.unclaimed = False
        return 0.0
    return measure_tree_cpu_s()
