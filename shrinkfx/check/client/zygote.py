"""The zygote: a process that a server leaves behind to become another server.

The server leaves it before it loads the program; ``worker/forkserver/zygote.py`` is the
other end. A zygote has imported torch with the variables of its server; so it becomes a
server only where a new process would get the same ones.
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
        "PYTHONNOUSERSITE",  # there is no zygote if a user's site is in use
        "PYTHONDONTWRITEBYTECODE",
        # Python's container images set these; no interpreter reads them.
        "PYTHON_VERSION",
        "PYTHON_SHA256",
        "PYTHON_PIP_VERSION",
        "PYTHON_SETUPTOOLS_VERSION",
        "PYTHON_GET_PIP_URL",
        "PYTHON_GET_PIP_SHA256",
    )
)
"""Variables that make no difference to what is imported."""

_PAUSE_S = 0.002
_PR_SET_CHILD_SUBREAPER, _PR_GET_CHILD_SUBREAPER = 36, 37


class Zygote:
    """A zygote that this process has adopted.

    The server that it becomes uses it in the place of ``subprocess.Popen``.

    Args:
        command: the command of its server.
        environment: all variables of its server.

    Attributes:
        its_ends: descriptors that the server's process must inherit.
        pid: its process ID; 0 before it exists.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._command, self._environment = tuple(command), environment
        order_source, order_sink = os.pipe()
        answer_source, answer_sink = os.pipe()
        self.its_ends: tuple[int, ...] = order_source, answer_sink
        self.stdin, self.stdout = FileIO(order_sink, "wb"), FileIO(answer_source, "rb")
        self.pid = 0
        self._status: int | None = None

    def close_inherited_ends(self) -> None:
        """Close its descriptors here, once the server's process has inherited them."""
        for end in self.its_ends:
            os.close(end)
        self.its_ends = ()

    def record_pid(self, pid: int) -> bool:
        """Record its process ID (0 for none); False if it cannot be used.

        A process that this one could not adopt cannot be used, because its CPU time
        would not be counted.
        """
        with contextlib.suppress(ChildProcessError):
            if pid and os.waitpid(pid, os.WNOHANG)[0] == 0:
                self.pid = pid
        return bool(self.pid)

    def become_server(
        self, command: Sequence[str], environment: Mapping[str, str], cwd: Path
    ) -> bool:
        """Make it a server with this command and environment; False if it cannot."""
        before = self._environment
        names = {*environment, *before}
        differing = {n for n in names if environment.get(n) != before.get(n)}
        if tuple(command) != self._command or not differing <= _MAY_DIFFER:
            return False
        changes = {name: environment.get(name) for name in sorted(differing)}
        try:
            self.stdin.write(Growth(changes, str(cwd)).to_line().encode())
        except OSError:  # the zygote has died
            return False
        return True

    def kill(self) -> None:
        if self.pid and self._status is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def wait(self, timeout: float = math.inf) -> int:
        """Wait for its end, and return the status as ``subprocess`` does.

        Raises:
            subprocess.TimeoutExpired: it has not ended.
        """
        deadline = time.monotonic() + timeout
        while self._status is None:
            try:
                ended, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:  # the application has waited for it
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
        self.close_inherited_ends()
        self.stdin.close()
        self.kill()
        if self.pid:
            self.wait()
        self.stdout.close()


class Adoption:
    """While entered, orphans of this process's descendants become its children.

    So their CPU time is counted with this process's children, and their exit status can
    be read. Several threads may be inside at a time.
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
