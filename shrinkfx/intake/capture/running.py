"""Run a command with what watches in it, and end it with all that it has started."""

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
from typing import IO

from shrinkfx.check.client.orphans import bear_mark, new_mark
from shrinkfx.errors import UsageError
from shrinkfx.intake.capture.counts import tell
from shrinkfx.intake.capture.outliving import ended
from shrinkfx.intake.capture.patience import Patience
from shrinkfx.intake.capture.pythons import in_short, script_in
from shrinkfx.intake.capture.records import ScriptEnd, open_steps
from shrinkfx.intake.capture.terminal import Terminal
from shrinkfx.processes import state_of
from shrinkfx.protocol.requests import MARK
from shrinkfx.wording import Flag

FOLDER = "SHRINKFX_CAPTURE"
"""The variable by which a process knows where to write."""

_STARTUP = Path(__file__).parents[2] / "worker" / "intake" / "startup"

_EVERY_S = 0.1
_BY_CTRL_C = (-signal.SIGINT, 128 + signal.SIGINT)
"""How what ends at a Ctrl-C leaves, a shell around it included."""

_PARTING_S = 5.0
"""What a script has to clear away when it is interrupted."""


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

        What it has started ends with it; and with this process, if that ends before.

        Raises:
            UsageError: there is no such program, or no such script.
            KeyboardInterrupt: Ctrl-C; the script has had it, too.
        """
        _require_script(self.command)
        mark = new_mark()
        with ended(mark), self._started(mark) as child, Terminal() as terminal:
            try:
                return self._watched(child, patience, terminal)
            except KeyboardInterrupt:
                self._interrupt(child)
                raise

    @contextlib.contextmanager
    def _started(self, mark: str) -> Iterator[subprocess.Popen[bytes]]:
        sys.stdout.flush()
        tell(self.folder)
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
            bear_mark(mark, child.pid)
            yield child
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()

    def _watched(
        self, child: subprocess.Popen[bytes], patience: Patience, terminal: Terminal
    ) -> ScriptEnd:
        died, told = 0, ""
        while child.poll() is None:
            steps = open_steps(self.folder)
            died = died or next((s.pid for s in steps if _is_gone(s.pid)), 0)
            if (hung := patience.at_its_end(steps)) is not None:
                child.kill()
                return ScriptEnd(
                    self.command, child.wait(), hung=hung.pid, hung_s=patience.waited_s
                )
            if steps and not told:
                terminal.take_back()  # nothing of PyTorch reads it, and hears Ctrl-C
            names = "; ".join(dict.fromkeys(step.name for step in steps))
            if names != told:
                told = names
                self.doing(f"{in_short(self.command)}: {names or 'running'}")
            terminal.lend_if_wanted(child.pid)
            time.sleep(_EVERY_S)
        if terminal.is_lent and child.returncode in _BY_CTRL_C:
            raise KeyboardInterrupt  # which the script alone has had
        return ScriptEnd(self.command, child.returncode, died=died)

    def _interrupt(self, child: subprocess.Popen[bytes]) -> None:
        """Let it end by itself, as at a Ctrl-C of its own."""
        with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
            os.killpg(child.pid, signal.SIGINT)
            child.wait(_PARTING_S)


def _require_script(command: Sequence[str]) -> None:
    """See that the script is there that a Python is to run.

    That Python would say so, too, and leave as one whose program fails.

    Raises:
        UsageError: it is not.
    """
    script = script_in(command)
    if script and not os.path.exists(script):
        near = difflib.get_close_matches(script, sorted(glob.glob("*.py")), 1, 0.7)
        meant = f": did you mean {near[0]}?" if near else ""
        raise UsageError(Flag("--capture"), f": {script}: no such file{meant}")


def environment(folder: Path, given: dict[str, str]) -> dict[str, str]:
    """Have each Python that is started look into our folder first."""
    places = [str(_STARTUP), given.get("PYTHONPATH", "")]
    path = os.pathsep.join(filter(None, places))
    return {**given, "PYTHONPATH": path, FOLDER: str(folder)}


def _is_gone(pid: int) -> bool:
    return state_of(pid) in ("", "Z", "X")
