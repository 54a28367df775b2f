"""What runs below a process, as ``/proc`` shows it."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path


def descendants(pid: int) -> Iterator[int]:
    """Yield every process below ``pid``, dead ones that nobody waited for too."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            children.setdefault(_parent(entry), []).append(int(entry))
    stack = [pid]
    while stack:
        for below in children.get(stack.pop(), ()):
            yield below
            stack.append(below)


def _parent(pid: str) -> int:
    try:
        text = Path("/proc", pid, "stat").read_text(errors="replace")
    except OSError:
        return 0
    return int(text.rpartition(")")[2].split()[1])


def rss_bytes(pid: int) -> int:
    """Read how much of a process is in memory; 0 if it has ended."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGESIZE")


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
