"""Run a command with what watches in it, and end it with all that it has started."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from shrinkfx.errors import UsageError
from shrinkfx.intake.capture.patience import Patience
from shrinkfx.intake.capture.records import ScriptEnd, open_steps
from shrinkfx.intake.capture.terminal import Terminal
from shrinkfx.processes import descendants, state_of

FOLDER = "SHRINKFX_CAPTURE"
"""The variable by which a process knows where to write; what has it is ours to end."""

_STARTUP = Path(__file__).parents[2] / "worker" / "intake" / "startup"

_EVERY_S = 0.1
_PARTING_S = 5.0
"""What a script has to clear away when it is interrupted."""

_SUBREAPER = 36
"""Of prctl: orphans of what is started become children of this process."""


@dataclass(frozen=True)
class Script:
    """A command, and where what it does is written down.

    Attributes:
        stdout: where its output goes; None for where this process's goes.
        doing: told what it is in the middle of.
    """

    command: tuple[str, ...]
    folder: Path
    stdout: IO[str] | None = None
    doing: Callable[[str], None] = lambda _: None

    def run(self, patience: Patience) -> ScriptEnd:
        """Run it to its end, or to that of somebody's patience.

        Raises:
            UsageError: there is no such program.
            KeyboardInterrupt: Ctrl-C; the script has had it, too.
        """
        with _adopting(), self._started() as child, Terminal() as terminal:
            try:
                return self._watched(child, patience, terminal)
            except KeyboardInterrupt:
                self._interrupt(child)
                raise
            finally:
                self._kill(child)

    @contextlib.contextmanager
    def _started(self) -> Iterator[subprocess.Popen[bytes]]:
        sys.stdout.flush()
        try:
            child = subprocess.Popen(
                self.command,
                env=environment(self.folder, dict(os.environ)),
                stdout=self.stdout,
                process_group=0,
            )
        except OSError as error:
            name = self.command[0]
            raise UsageError(
                f"--capture -- {name}: {error.strerror}; what follows -- is a command "
                "as you would type it: shrinkfx --capture -- python serve.py"
            ) from error
        with child:
            yield child

    def _watched(
        self, child: subprocess.Popen[bytes], patience: Patience, terminal: Terminal
    ) -> ScriptEnd:
        died, told = 0, ""
        while child.poll() is None:
            steps = open_steps(self.folder)
            died = died or next((s.pid for s in steps if _is_gone(s.pid)), 0)
            if (hung := patience.at_its_end(steps)) is not None:
                self._kill(child)
                return ScriptEnd(
                    self.command, child.wait(), hung=hung.pid, hung_s=patience.waited_s
                )
            names = "; ".join(dict.fromkeys(step.name for step in steps))
            if names != told:
                told = names
                self.doing(f"{' '.join(self.command[:2])}: {names or 'running'}")
            terminal.lend_if_wanted(child.pid)
            time.sleep(_EVERY_S)
        return ScriptEnd(self.command, child.returncode, died=died)

    def _interrupt(self, child: subprocess.Popen[bytes]) -> None:
        """Let it end by itself, as at a Ctrl-C of its own."""
        with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
            os.killpg(child.pid, signal.SIGINT)
            child.wait(_PARTING_S)

    def _kill(self, child: subprocess.Popen[bytes]) -> None:
        """End it and whatever it has left, which bears the variable of ours."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)
        mark = f"{FOLDER}={self.folder}\0".encode()
        for pid in list(descendants(os.getpid())):
            with contextlib.suppress(OSError):
                if mark in Path(f"/proc/{pid}/environ").read_bytes():
                    os.kill(pid, signal.SIGKILL)
        child.wait()
        with contextlib.suppress(ChildProcessError):  # orphans, now children of ours
            while os.waitpid(-child.pid, os.WNOHANG)[0]:
                pass


def environment(folder: Path, given: dict[str, str]) -> dict[str, str]:
    """Have each Python that is started look into our folder first."""
    places = [str(_STARTUP), given.get("PYTHONPATH", "")]
    path = os.pathsep.join(filter(None, places))
    return {**given, "PYTHONPATH": path, FOLDER: str(folder)}


def _is_gone(pid: int) -> bool:
    return state_of(pid) in ("", "Z", "X")


@contextlib.contextmanager
def _adopting() -> Iterator[None]:
    """Have what outlives its parent become a child of this process for a while."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        libc.prctl(_SUBREAPER, 0, 0, 0, 0)
