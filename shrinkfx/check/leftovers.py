"""Processes and folders that a server leaves behind when it is killed."""

from __future__ import annotations

import contextlib
import os
import signal
import time
import uuid
from pathlib import Path

from shrinkfx import scratch

MARK = "SHRINKFX_SERVER"
"""A variable that all below a server inherit, however far they run."""


def new_mark() -> str:
    """Mark a server, and tell whose it is."""
    return f"{scratch.root().name}:{uuid.uuid4().hex}"


def clear_leftovers() -> None:
    """Kill and remove what killed processes of this user have left behind.

    A killed server takes its child along, but not what that has started; and if its
    parent is killed with it, nobody is left to look for those.
    """
    for folder in scratch.abandoned():
        kill_marked(f"{folder.name}:")


def kill_marked(mark: str) -> None:
    """Kill what carries a mark, or one that begins so."""
    needle = f"{MARK}={mark}".encode()
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        found = [pid for pid in _pids() if needle in _environ(pid)]
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
