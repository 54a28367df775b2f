"""Run a command with the capture in its processes, and end all that it started."""

from __future__ import annotations

import contextlib
import difflib
import glob
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from shrinkfx.check.client.orphans import new_mark, tag_process
from shrinkfx.errors import UsageError
from shrinkfx.intake.capture.counts import write_counts
from shrinkfx.intake.capture.outliving import kill_at_end
from shrinkfx.intake.capture.patience import HangDetector
from shrinkfx.intake.capture.pythons import find_python_script, shorten_command
from shrinkfx.intake.capture.records import ScriptEnd, open_steps
from shrinkfx.protocol.requests import MARK
from shrinkfx.system.processes import read_process_state
from shrinkfx.wording import Flag

FOLDER = "SHRINKFX_CAPTURE"
"""The environment variable with the folder to which the processes write."""

_STARTUP = Path(__file__).parents[2] / "worker" / "intake" / "startup"

_EVERY_S = 0.1
_BY_CTRL_C = (-signal.SIGINT, 128 + signal.SIGINT)
"""Exit statuses after Ctrl-C, of a process and of a shell around it."""

_EXIT_WAIT_S = 5.0
"""Seconds that an interrupted script has for its cleanup."""


@dataclass(frozen=True)
class CapturedCommand:
    """A command, and the folder of its capture.

    Attributes:
        stdout: a file for its output; None to inherit this process's stdout.
        doing: called with the current step, for progress.
    """

    command: tuple[str, ...]
    folder: Path
    stdout: IO[str] | None = None
    doing: Callable[[str], None] = lambda _: None

    def run(self, patience: HangDetector) -> ScriptEnd:
        """Run the command until it ends or hangs.

        All processes that it started are killed when it ends, or when this process
        dies.

        Raises:
            UsageError: the program or the script does not exist.
            KeyboardInterrupt: on Ctrl-C, which the script receives too.
        """
        _require_script(self.command)
        mark = new_mark()
        with kill_at_end(mark), self._started(mark) as child, Terminal() as terminal:
            try:
                return self._watched(child, patience, terminal)
            except KeyboardInterrupt:
                self._interrupt(child)
                raise

    @contextlib.contextmanager
    def _started(self, mark: str) -> Iterator[subprocess.Popen[bytes]]:
        sys.stdout.flush()
        write_counts(self.folder)
        try:
            child = subprocess.Popen(
                self.command,
                env={**environment(self.folder, dict(os.environ)), MARK: mark},
                stdout=self.stdout,
                process_group=0,
            )
        except OSError as error:
            name = self.command[0]
            script = (
                name if name.endswith(".py") and os.path.isfile(name) else "serve.py"
            )
            raise UsageError(
                Flag("--capture", name),
                f": {error.strerror}; give a command as you would type it, for example "
                f"python {shlex.quote(script)}",
            ) from error
        try:
            tag_process(mark, child.pid)
            yield child
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()

    def _watched(
        self, child: subprocess.Popen[bytes], patience: HangDetector, terminal: Terminal
    ) -> ScriptEnd:
        died, shown = 0, ""
        while child.poll() is None:
            steps = open_steps(self.folder)
            died = died or next((s.pid for s in steps if _is_gone(s.pid)), 0)
            if (hung := patience.find_hanging_step(steps)) is not None:
                child.kill()
                return ScriptEnd(
                    self.command, child.wait(), hung=hung.pid, hung_s=patience.waited_s
                )
            if steps and not shown:
                terminal.take_back()  # PyTorch does not read it or handle Ctrl-C
            names = "; ".join(dict.fromkeys(step.name for step in steps))
            if names != shown:
                shown = names
                self.doing(f"{shorten_command(self.command)}: {names or 'running'}")
            terminal.lend_if_wanted(child.pid)
            time.sleep(_EVERY_S)
        if terminal.is_lent and child.returncode in _BY_CTRL_C:
            raise KeyboardInterrupt  # only the script received it
        return ScriptEnd(self.command, child.returncode, died=died)

    def _interrupt(self, child: subprocess.Popen[bytes]) -> None:
        """Interrupt the script as Ctrl-C does, and wait for it to end by itself."""
        with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
            os.killpg(child.pid, signal.SIGINT)
            child.wait(_EXIT_WAIT_S)


def _require_script(command: Sequence[str]) -> None:
    """Raise if the script that a Python command names does not exist.

    Python itself would fail in that case, and look like a script with a failing
    program.

    Raises:
        UsageError: the script does not exist.
    """
    script = find_python_script(command)
    if script and not os.path.exists(script):
        matches = difflib.get_close_matches(script, sorted(glob.glob("*.py")), 1, 0.7)
        hint = f": did you mean {matches[0]}?" if matches else ""
        raise UsageError(Flag("--capture"), f": {script}: no such file{hint}")


def environment(folder: Path, variables: dict[str, str]) -> dict[str, str]:
    """Return an environment in which each Python runs the capture's startup code."""
    places = [str(_STARTUP), variables.get("PYTHONPATH", "")]
    path = os.pathsep.join(filter(None, places))
    return {**variables, "PYTHONPATH": path, FOLDER: str(folder)}


def _is_gone(pid: int) -> bool:
    return read_process_state(pid) in ("", "Z", "X")


# Lend the terminal to a script that reads it.
#
# A script runs in its own process group, so that Ctrl-C reaches shrinkfx, because a
# script that hangs in native code cannot handle it. The kernel stops such a group
# when it reads the terminal. The script then gets the terminal, and Ctrl-C with it,
# until it begins a step in PyTorch.

_STDIN = 0
_WANTS_IT = (signal.SIGTTIN, signal.SIGTTOU)


class Terminal:
    """Lends the terminal, and takes it back at the end of the ``with`` block.

    Attributes:
        is_lent: whether Ctrl-C reaches only the script.
    """

    def __init__(self) -> None:
        self.is_lent = False

    def lend_if_wanted(self, group: int) -> None:
        """Give the terminal to a child that was stopped for reading it; continue it."""
        flags = os.WSTOPPED | os.WNOHANG
        with contextlib.suppress(OSError, ValueError):
            stopped = os.waitid(os.P_PID, group, flags)
            if stopped is None or stopped.si_status not in _WANTS_IT:
                return
            if os.tcgetpgrp(_STDIN) == os.getpgrp():  # we have the terminal
                _give(group)
                self.is_lent = True
            os.killpg(group, signal.SIGCONT)

    def take_back(self) -> None:
        """Make this process the foreground group again if the terminal was lent."""
        if self.is_lent:
            with contextlib.suppress(OSError, ValueError):
                _give(os.getpgrp())
            self.is_lent = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.take_back()


def _give(group: int) -> None:
    """Make a group the foreground group.

    SIGTTOU is ignored meanwhile, because it would stop a background process that does
    this.
    """
    before = signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    try:
        os.tcsetpgrp(_STDIN, group)
    finally:
        signal.signal(signal.SIGTTOU, before)
