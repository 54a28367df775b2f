"""What a server has left behind before it loaded anything, to become another one.

``worker/forkserver/stem.py`` is the other end. A stem has imported torch with the
variables that its server was started with; so it becomes a server only where a new
process would have been given the same.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from io import FileIO
from pathlib import Path
from typing import Any

from shrinkfx.protocol.requests import MARK, Growth

_MAY_DIFFER = frozenset(
    (
        MARK,
        "PYTHONNOUSERSITE",  # there is no stem where a user's site is in use
        "PYTHONDONTWRITEBYTECODE",
        # Images of Python are built with them; no interpreter reads them.
        "PYTHON_VERSION",
        "PYTHON_SHA256",
        "PYTHON_PIP_VERSION",
        "PYTHON_SETUPTOOLS_VERSION",
        "PYTHON_GET_PIP_URL",
        "PYTHON_GET_PIP_SHA256",
    )
)
"""Variables without which the same is imported."""

_PAUSE_S = 0.002
_PR_SET_CHILD_SUBREAPER, _PR_GET_CHILD_SUBREAPER = 36, 37


class Stem:
    """A process that this one has adopted.

    To a server that it becomes it is what ``subprocess.Popen`` is to others.

    Args:
        command: what its server is started with.
        environment: all variables of that.

    Attributes:
        its_ends: descriptors that the server's process must inherit.
        pid: 0 before there is one.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._command, self._environment = tuple(command), environment
        orders, tell = os.pipe()
        hear, answers = os.pipe()
        self.its_ends: tuple[int, ...] = orders, answers
        self.stdin, self.stdout = FileIO(tell, "wb"), FileIO(hear, "rb")
        self.pid = 0
        self._status: int | None = None

    def hand_over(self) -> None:
        """Close its ends here, once the server's process has them."""
        for end in self.its_ends:
            os.close(end)
        self.its_ends = ()

    def is_left(self, pid: int) -> bool:
        """Learn its number, 0 for none; False if nothing can become of it.

        One that this process could not adopt would end in no meter.
        """
        with contextlib.suppress(ChildProcessError):
            if pid and os.waitpid(pid, os.WNOHANG)[0] == 0:
                self.pid = pid
        return bool(self.pid)

    def grow(
        self, command: Sequence[str], environment: Mapping[str, str], cwd: Path
    ) -> bool:
        """Have it become what a new process would; False if it cannot."""
        before = self._environment
        names = {*environment, *before}
        other = {n for n in names if environment.get(n) != before.get(n)}
        if tuple(command) != self._command or not other <= _MAY_DIFFER:
            return False
        changes = {name: environment.get(name) for name in sorted(other)}
        try:
            self.stdin.write(Growth(changes, str(cwd)).to_line().encode())
        except OSError:  # it has died
            return False
        return True

    def kill(self) -> None:
        if self.pid and self._status is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def wait(self, timeout: float = math.inf) -> int:
        """Wait for its end, and tell it as ``subprocess`` does.

        Raises:
            subprocess.TimeoutExpired: it has not ended.
        """
        deadline = time.monotonic() + timeout
        while self._status is None:
            try:
                ended, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:  # whoever uses us has waited for it
                ended, status = self.pid, 0
            if ended:
                self._status = os.waitstatus_to_exitcode(status)
            elif time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(self._command, timeout)
            else:
                time.sleep(_PAUSE_S)
        return self._status

    def close(self) -> None:
        """End it; safe to call twice."""
        self.hand_over()
        self.stdin.close()
        self.kill()
        if self.pid:
            self.wait()
        self.stdout.close()


class Adoption:
    """While entered, what processes below this one leave behind becomes its child.

    So the CPU-seconds of that count where those of this process do, and its end can be
    told. Several threads may be in it at a time.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._before = ctypes.c_int()

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._ask(_PR_GET_CHILD_SUBREAPER, ctypes.byref(self._before))
                self._ask(_PR_SET_CHILD_SUBREAPER, 1)
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                self._ask(_PR_SET_CHILD_SUBREAPER, self._before)

    def _ask(self, what: int, argument: Any) -> None:  # noqa: ANN401 - of C
        ctypes.CDLL(None).prctl(what, argument, 0, 0, 0)


ADOPTION = Adoption()
