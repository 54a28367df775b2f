"""Child processes: run a command with a time limit, and end what a killed run left."""

from __future__ import annotations

import contextlib
import os
import resource
import secrets
import subprocess
import time
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from shrinkfx.protocol.requests import MARK
from shrinkfx.system import scratch
from shrinkfx.system.processes import kill_with_group, read_rss_bytes

_BITS = 28
"""The bits of a server's number that distinguish it from others of its process."""


def new_mark() -> str:
    """Create the mark of a server, which also tells the process that owns it.

    The worker uses the number as its limit of real-time microseconds, which is more
    than any process could use: a daemon clears its environment, but inherits its
    limits.
    """
    owner = scratch.root().name
    return f"{owner}:{_numbers(owner).start + secrets.randbits(_BITS)}"


def tag_process(mark: str, pid: int) -> None:
    """Tag a process, and its later children, with the number of a mark.

    A worker tags itself (``worker/forkserver/supervise.py``).
    """
    number = int(mark.rpartition(":")[2])
    with contextlib.suppress(ValueError, OSError):  # it may have a lower limit
        _, most = resource.prlimit(pid, resource.RLIMIT_RTTIME)
        resource.prlimit(pid, resource.RLIMIT_RTTIME, (number, most))


def _numbers(owner: str) -> range:
    """Return the range of numbers for the servers of a process."""
    first = 1 << 62 | zlib.crc32(owner.encode()) << _BITS
    return range(first, first + (1 << _BITS))


def clear_orphans() -> None:
    """Kill the processes and remove the folders that killed runs of this user left.

    A killed server's child dies with it, but not the processes that the child started;
    and if the server's parent is killed too, no process is left to kill them.
    """
    for folder in scratch.remove_abandoned_roots():
        kill_marked(f"{folder.name}:")


def kill_marked(mark: str) -> None:
    """Kill the processes with a mark, or with a mark that begins so.

    A dead process also has a limit, and stays where process 1 waits for no child; so
    processes without memory are ignored.
    """
    needle = f"{MARK}={mark}".encode()
    owner, _, number = mark.partition(":")
    numbers = range(int(number), int(number) + 1) if number else _numbers(owner)
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        pids = [
            pid
            for pid in _pids()
            if needle in _environ(pid)
            or (_limit(pid) in numbers and read_rss_bytes(pid))
        ]
        if not pids:
            return
        for pid in pids:
            kill_with_group(pid)
        time.sleep(0.005)


def _pids() -> list[int]:
    return [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]


def _environ(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""


def _limit(pid: int) -> int:
    """Return a process's limit of real-time microseconds; -1 if it has none."""
    try:
        return resource.prlimit(pid, resource.RLIMIT_RTTIME)[0]
    except (ProcessLookupError, PermissionError):
        return -1


def run_command(
    words: Sequence[str], limit_s: float, variables: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command; no process that it started outlives the call.

    Args:
        limit_s: the limit, in seconds of wall time.
        variables: its environment; None for this process's.

    Raises:
        subprocess.TimeoutExpired: the command did not end in time, and was killed.
    """
    mark = new_mark()
    with subprocess.Popen(
        words,
        env={**(os.environ if variables is None else variables), MARK: mark},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        errors="replace",
        start_new_session=True,
    ) as child:
        try:
            out, err = child.communicate(timeout=limit_s)
        finally:
            kill_marked(mark)
            child.wait()  # Popen does not wait after a Ctrl-C
    return subprocess.CompletedProcess(words, child.returncode, out, err)
