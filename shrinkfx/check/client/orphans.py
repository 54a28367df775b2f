"""Processes and folders that a server leaves behind when it is killed."""

from __future__ import annotations

import contextlib
import os
import resource
import secrets
import signal
import time
import zlib
from pathlib import Path

from shrinkfx import scratch
from shrinkfx.processes import rss_bytes
from shrinkfx.protocol.requests import MARK

_BITS = 28
"""Of a server's number that tell it from others of its process."""


def new_mark() -> str:
    """Mark a server, and tell whose it is.

    The worker takes the number for its own limit of real-time microseconds, one beyond
    all that any process could use: a daemon empties its environment, but its limits
    are inherited all the same.
    """
    owner = scratch.root().name
    return f"{owner}:{_numbers(owner).start + secrets.randbits(_BITS)}"


def bear_mark(mark: str, pid: int) -> None:
    """Have a process be found by the number of a mark, and all that it starts then.

    A worker does so by itself (``worker/forkserver/supervise.py``).
    """
    number = int(mark.rpartition(":")[2])
    with contextlib.suppress(ValueError, OSError):  # it may have a lower one
        _, most = resource.prlimit(pid, resource.RLIMIT_RTTIME)
        resource.prlimit(pid, resource.RLIMIT_RTTIME, (number, most))


def _numbers(owner: str) -> range:
    """Give a process the numbers for its servers."""
    first = 1 << 62 | zlib.crc32(owner.encode()) << _BITS
    return range(first, first + (1 << _BITS))


def clear_orphans() -> None:
    """Kill and remove what killed processes of this user have left behind.

    A killed server takes its child along, but not what that has started; and if its
    parent is killed with it, nobody is left to look for those.
    """
    for folder in scratch.abandoned():
        kill_marked(f"{folder.name}:")


def kill_marked(mark: str) -> None:
    """Kill what carries a mark, or one that begins so.

    The dead carry a limit as well, and stay where the first process waits for none.
    """
    needle = f"{MARK}={mark}".encode()
    owner, _, number = mark.partition(":")
    numbers = range(int(number), int(number) + 1) if number else _numbers(owner)
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        found = [
            pid
            for pid in _pids()
            if needle in _environ(pid) or (_limit(pid) in numbers and rss_bytes(pid))
        ]
        if not found:
            return
        for pid in found:
            _kill(pid)
        time.sleep(0.005)


def _kill(pid: int) -> None:
    """Kill a process and its group: so whatever it forks meanwhile dies too."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        group = os.getpgid(pid)
        if group != os.getpgrp():
            os.killpg(group, signal.SIGKILL)
        os.kill(pid, signal.SIGKILL)


def _pids() -> list[int]:
    return [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]


def _environ(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""


def _limit(pid: int) -> int:
    """Read a process's limit of real-time microseconds; -1 if it has none."""
    try:
        return resource.prlimit(pid, resource.RLIMIT_RTTIME)[0]
    except (ProcessLookupError, PermissionError):
        return -1
