"""Run a command with the capture in its processes, and end all that it started."""

from __future__ import annotations

import contextlib
import difflib
import glob
import os
import re
import select
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import IO

import shrinkfx
from shrinkfx.check.client.orphans import kill_marked, new_mark, tag_process
from shrinkfx.errors import UsageError
from shrinkfx.intake.capture.records import ScriptEnd, open_steps
from shrinkfx.protocol.captured import CALL, Step
from shrinkfx.protocol.requests import MARK
from shrinkfx.system.own_time import OwnTime
from shrinkfx.system.processes import (
    Sample,
    list_descendants,
    read_process_state,
    sample_processes,
)

FOLDER = "SHRINKFX_CAPTURE"
"""The environment variable with the folder to which the processes write."""

_AUTOGRAD_CACHE = "TORCHINDUCTOR_AUTOGRAD_CACHE"
"""A variable of PyTorch: a graph in this cache does not reach Inductor."""

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
        with (
            kill_at_end(mark),
            self._started(mark) as child,
            contextlib.closing(Terminal()) as terminal,
        ):
            try:
                return self._watched(child, patience, terminal)
            except KeyboardInterrupt:
                self._interrupt(child)
                raise

    @contextlib.contextmanager
    def _started(self, mark: str) -> Iterator[subprocess.Popen[bytes]]:
        sys.stdout.flush()
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
                f"--capture {name}",
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
                terminal.close()  # PyTorch does not read it or handle Ctrl-C
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
        raise UsageError(f"--capture: {script}: no such file{hint}")


def environment(folder: Path, variables: dict[str, str]) -> dict[str, str]:
    """Return an environment in which each Python runs the capture's startup code."""
    places = [str(_STARTUP), variables.get("PYTHONPATH", "")]
    path = os.pathsep.join(filter(None, places))
    return {**variables, "PYTHONPATH": path, FOLDER: str(folder), _AUTOGRAD_CACHE: "0"}


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
    """Lends the terminal. ``close`` takes it back, and then it can be lent again.

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

    def close(self) -> None:
        """Make this process the foreground group again if the terminal was lent."""
        if self.is_lent:
            with contextlib.suppress(OSError, ValueError):
                _give(os.getpgrp())
            self.is_lent = False


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


# A helper process that kills what a captured script leaves running.
#
# It waits for the end of its stdin or for the death of this process, because a killed
# process cannot clean up itself.


_CHECK_PARENT_S = 1.0
"""Interval in seconds at which the helper checks its parent.

The pipe alone is not sufficient, because a forked copy of the parent may keep it open.
"""


@contextlib.contextmanager
def kill_at_end(mark: str) -> Iterator[None]:
    """Kill all processes with a mark when the block ends or this process dies."""
    root = str(Path(shrinkfx.__file__).resolve().parents[1])
    path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
    other = subprocess.Popen(
        [sys.executable, "-P", "-m", __name__, mark, str(os.getpid())],
        env={**os.environ, "PYTHONPATH": path},
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield
    finally:
        other.communicate()  # closes its stdin; another Ctrl-C has no effect
        if other.returncode:
            kill_marked(mark)


def _wait(parent: int) -> None:
    while (
        os.getppid() == parent
        and not select.select([_STDIN], [], [], _CHECK_PARENT_S)[0]
    ):
        pass


# Decide when a script hangs: only inside a step in PyTorch, never between steps.
#
# A server that waits for requests does not hang. A step hangs if its processes use no
# CPU, read nothing and write nothing for a minute. A busy call may take ten minutes of
# its own time; a busy compilation has no limit. ``--timeout`` limits the own time of
# any step.


ASLEEP_S, BUSY_CALL_S = 60.0, 600.0
"""Limits in seconds of an idle step and of a busy call.

A check of a small program, and one of the largest programs, may take as long.
"""

_IDLE_CPU_S = 0.05
"""CPU seconds that idle threads may use between two looks."""

Key = tuple[int, str, int]


@dataclass
class _Watched:
    """A step, and the time of its last known activity."""

    own: OwnTime
    since: float
    cpu_seconds: float = 0.0
    moved: int = 0


@dataclass
class HangDetector:
    """Finds the steps that hang.

    Attributes:
        timeout_s: the value of ``--timeout``, or None.
        waited_s: seconds that the last hanging step was waited for.
    """

    timeout_s: float | None = None
    clock: Callable[[], float] = time.monotonic
    look: Callable[[int], Sample] = lambda pid: sample_processes(
        [pid, *list_descendants(pid)]
    )
    moved: Callable[[int], int] = lambda pid: bytes_moved(pid)
    asleep_s: float = ASLEEP_S
    waited_s: float = 0.0
    _watched: dict[Key, _Watched] = field(default_factory=dict)

    def find_hanging_step(self, steps: Sequence[Step]) -> Step | None:
        """Return a step that hangs, or None.

        Args:
            steps: all steps that have not ended.
        """
        keys = {_key(step) for step in steps}
        for ended in self._watched.keys() - keys:
            del self._watched[ended]
        return next((step for step in steps if self._hangs(step)), None)

    def _hangs(self, step: Step) -> bool:
        watched = self._watched.get(_key(step))
        if watched is None:
            own_time = OwnTime(lambda: self.look(step.pid), clock=self.clock)
            self._watched[_key(step)] = _Watched(own_time, self.clock())
            return False
        limit = self.timeout_s or (BUSY_CALL_S if step.what == CALL else None)
        if limit is not None and watched.own.exceeds(limit):
            self.waited_s = watched.own.seconds
            return True
        return self.timeout_s is None and self._sleeps(step, watched)

    def _sleeps(self, step: Step, watched: _Watched) -> bool:
        """Return whether a step is idle; look rarely, because a look is expensive."""
        if self.clock() - watched.since < self.asleep_s:
            return False
        seen, moved = self.look(step.pid), self.moved(step.pid)
        used = seen.cpu_seconds - watched.cpu_seconds
        idle = seen.is_asleep and used < _IDLE_CPU_S and moved == watched.moved
        self.waited_s = self.clock() - watched.since
        watched.since, watched.cpu_seconds = self.clock(), seen.cpu_seconds
        watched.moved = moved
        return idle


def _key(step: Step) -> Key:
    return step.pid, step.what, step.at


def bytes_moved(pid: int) -> int:
    """Return the bytes that a process has read and written, including pipes."""
    try:
        lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    except OSError:
        return 0
    counters = dict(line.split(": ") for line in lines)
    return int(counters.get("rchar", 0)) + int(counters.get("wchar", 0))


# Recognize the Python of a command, and rewrite the command for shrinkfx's Python.


_PYTHON = re.compile(r"python[\d.]*")


def is_python(word: str) -> bool:
    """Return whether a command's first word is a Python interpreter."""
    return bool(_PYTHON.fullmatch(os.path.basename(word)))


def find_python_script(command: Sequence[str]) -> str:
    """Return the path of the script that a Python command runs, or ''.

    It is '' for stdin (``-``), a module (``-m``) and inline code (``-c``).
    """
    if not is_python(command[0]):
        return ""
    words = iter(command[1:])
    for word in words:
        if word in _TAKES_A_WORD:
            next(words, None)
        elif not word.startswith("-"):
            return word
        elif word == "-" or word.startswith(("-c", "-m")):
            return ""
    return ""


_TAKES_A_WORD = {"-X", "-W", "--check-hash-based-pycs"}
"""Options of Python that take a separate value."""


def shorten_command(command: Sequence[str]) -> str:
    """Shorten a command to its first two words, or three for ``python -m module``."""
    return " ".join(command[: 3 if "-m" in command[:2] else 2])


def advise_own_python(command: Sequence[str]) -> str:
    """Return advice to run a command with the Python of shrinkfx."""
    if find_spec("torch") is None:
        return "\nuse the path of a Python that has PyTorch, as in /env/bin/python"
    name, *rest = command
    module = _RUN_AS.get(os.path.basename(name))
    python: tuple[str, ...] = (sys.executable, *(("-m", module) if module else ()))
    if module is None and not is_python(name):
        path = f"PATH={shlex.quote(os.path.dirname(sys.executable))}:$PATH"
        suggestion = f"{path} shrinkfx --capture -- {shlex.join(command)}"
    else:
        suggestion = f"shrinkfx --capture -- {shlex.join((*python, *rest))}"
    return f"\nto run it with the Python of shrinkfx, which has PyTorch: {suggestion}"


_RUN_AS = {"pytest": "pytest", "py.test": "pytest", "torchrun": "torch.distributed.run"}
"""Commands that are modules of the Python for which they are installed."""


if __name__ == "__main__":
    _wait(int(sys.argv[2]))
    kill_marked(sys.argv[1])
