"""A fork of a server, which runs checks in parallel: a server runs one at a time.

It shares what the server has loaded, as memory that is copied on write, and ends with
the server.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import tempfile
import threading
from pathlib import Path
from typing import Protocol

from shrinkfx.check.client.line import Line
from shrinkfx.check.client.orphans import kill_marked, new_mark
from shrinkfx.check.client.server import read_log_end
from shrinkfx.errors import WorkerError
from shrinkfx.protocol.answers import Ending
from shrinkfx.protocol.requests import LINE, CheckOptions, ForkServer, Request
from shrinkfx.system import unpacked

_CONNECT_S = 60.0


class Forking(Protocol):
    """A server that can fork; ``Server`` is one."""

    directory: Path

    def fork(self, request: Request) -> Ending: ...


class Fork:
    """A fork that runs one request at a time, which another thread may cancel.

    Args:
        server: the server to fork. Only the thread that asks the server may create a
            fork.
        options: the options of the candidates to check.
        servers: how many servers share the disk.
        gpu: the index of the server's GPU to use, if it has several.

    Attributes:
        birth: the server's answer to the request to fork.
    """

    def __init__(
        self, server: Forking, options: CheckOptions, servers: int, gpu: int = 0
    ) -> None:
        self.gpu = gpu
        self._mark, self._lock = new_mark(), threading.Lock()
        self.directory = Path(tempfile.mkdtemp(prefix="fork-", dir=server.directory))
        task = ForkServer(str(self.directory), self._mark, servers, gpu)
        try:
            with socket.socket(socket.AF_UNIX) as awaited:
                _bind(awaited, self.directory)
                self.birth = server.fork(Request(task, options))
                self._socket = _accept(awaited, self)
        except BaseException:
            self._remove()
            raise
        descriptor = self._socket.fileno()
        self._line = Line(descriptor, descriptor, self)

    def send(self, request: Request) -> None:
        """Send a request.

        Raises:
            WorkerError: the fork has closed its connection.
        """
        with self._lock:
            self._line.write(request.to_line())

    def receive(self, request: Request) -> Ending:
        """Wait for the answer to the request that was sent.

        Raises:
            WorkerError: there will be no answer.
        """
        return self._line.receive(request)

    def cancel(self) -> None:
        """Let the running request end soon; do nothing if it has ended."""
        # The thread that waits for the answer gets the error.
        with self._lock, contextlib.suppress(WorkerError):
            self._line.cancel()

    @property
    def is_alive(self) -> bool:
        """Whether an idle fork is alive: its connection is open and silent."""
        return not self._line.can_be_read()

    def end(self) -> None:
        """End the fork and its processes; a thread waiting for an answer gets none."""
        with self._lock:
            self._line.closed = True
            with contextlib.suppress(OSError):  # the fork has ended
                self._socket.shutdown(socket.SHUT_RDWR)
        self._remove()

    def close(self) -> None:
        """End the fork, if no thread waits for an answer; safe to call twice."""
        self.end()
        self._socket.close()

    def _remove(self) -> None:
        kill_marked(self._mark)
        unpacked.remove_with_packages(self.directory)

    @property
    def log(self) -> str:
        """The end of the fork's own log."""
        return read_log_end(self.directory)

    def make_death_error(self, doing: str) -> WorkerError:
        """Create the error for a dead fork; only its server knows the exit status."""
        return WorkerError(f"a fork of the worker died while {doing}", self.log)


def _bind(awaited: socket.socket, directory: Path) -> None:
    """Listen in the fork's folder through /proc, because its path may be too long."""
    folder = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        awaited.bind(f"/proc/self/fd/{folder}/{LINE}")
    finally:
        os.close(folder)
    awaited.listen(1)


def _accept(awaited: socket.socket, fork: Fork) -> socket.socket:
    poll = select.poll()
    poll.register(awaited, select.POLLIN)
    if not poll.poll(_CONNECT_S * 1000):
        raise WorkerError("a fork of the worker did not connect", fork.log)
    connected, _ = awaited.accept()
    connected.setblocking(False)
    return connected
