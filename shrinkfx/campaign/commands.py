"""The command that runs shrinkfx on one program of a triage, and where it runs."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Collection, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from shrinkfx.errors import StorageError
from shrinkfx.journal.journal import Journal
from shrinkfx.system.folders import JOURNAL
from shrinkfx.system.processes import kill_with_group

TOOL = (sys.executable, "-P", "-m", "shrinkfx.campaign.child")
"""The command line of shrinkfx, in a process that dies with the one that started it."""

_LONGEST_S = 12 * 3600.0
"""Maximum time of one run in seconds, so that no run lasts for ever."""

_POLL_S = 1.0

_ENDING_S = 30.0
"""Time in seconds that an interrupted run may take to save its state."""


@dataclass(frozen=True)
class Command:
    """A command that runs shrinkfx on a program, or resumes its run.

    Attributes:
        words: the program and the options of a new run.
        folder: the folder of the run.
        log: the file for what it prints to stderr.
        cwd: the folder that relative paths in its options refer to.
    """

    words: tuple[str, ...]
    folder: Path
    log: Path
    cwd: str

    def start(self, tool: Sequence[str] = TOOL) -> subprocess.Popen[str]:
        """Start the command in a process group of its own.

        Args:
            tool: the command that runs shrinkfx.
        """
        if _has_begun(self.folder):
            words = ["--resume", str(self.folder)]
        else:
            words = [*self.words, "--out", str(self.folder)]
        with self.log.open("a") as log:
            return subprocess.Popen(
                [*tool, *words, "--json", "--quiet"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                errors="replace",
                cwd=self.cwd,
                start_new_session=True,
            )


def wait_for(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Return the exit code of a command, and what it prints; kill it after 12 hours."""
    deadline = time.monotonic() + _LONGEST_S
    with process:
        try:
            while True:
                # Short waits, because Ray can cancel a task only between two waits.
                with suppress(subprocess.TimeoutExpired):
                    printed, _ = process.communicate(timeout=_POLL_S)
                    return process.returncode, printed
                if time.monotonic() > deadline:
                    kill_with_group(process.pid)
        except BaseException:
            kill_with_group(process.pid)
            raise


def _has_begun(folder: Path) -> bool:
    """Return whether a folder holds a run that can be resumed."""
    path = folder / JOURNAL
    if not path.is_file():
        return False
    try:
        with closing(Journal(path, only_read=True)) as journal:
            return journal.fact("run") is not None
    except StorageError:
        return True  # its run reports the damage


class Executor(Protocol):
    """Where commands run. Several threads may use it at a time.

    Attributes:
        jobs: how many commands to run at a time, if the user does not choose.
    """

    jobs: int

    def run(self, command: Command) -> tuple[int, str]:
        """Return the exit code of a command, and what it prints.

        Raises:
            OSError: the command could not be run.
        """

    def stop(self) -> None:
        """End all commands, and start no others; ``run`` then raises an exception."""


class Stopped(Exception):
    """No further command may start."""


class LocalExecutor:
    """Runs commands on this machine.

    Args:
        tool: the command that runs shrinkfx.
    """

    jobs = 1

    def __init__(self, tool: Sequence[str] = TOOL) -> None:
        self._tool = tool
        self._lock = threading.Lock()
        self._alive: set[subprocess.Popen[str]] = set()
        self._is_stopped = False

    def run(self, command: Command) -> tuple[int, str]:
        with self._lock:
            if self._is_stopped:
                raise Stopped
            process = command.start(self._tool)
            self._alive.add(process)
        try:
            return wait_for(process)
        finally:
            self._alive.discard(process)

    def stop(self) -> None:
        """Interrupt all commands, and kill those that do not end in time."""
        with self._lock:
            self._is_stopped = True
        processes = [*self._alive]
        try:
            _interrupt(processes)
        finally:  # also after a second Ctrl-C
            for process in processes:
                if process.poll() is None:
                    kill_with_group(process.pid)


def _interrupt(processes: Collection[subprocess.Popen[str]]) -> None:
    """Send Ctrl-C twice, because the first one only ends the search of a run."""
    for _ in range(2):
        for process in processes:
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGINT)
        time.sleep(1.0)
    deadline = time.monotonic() + _ENDING_S
    for process in processes:
        with suppress(subprocess.TimeoutExpired):
            process.wait(max(0.0, deadline - time.monotonic()))
