"""A fork of a server, which answers beside it: one server has one question at a time.

It has what the server has loaded, in memory that both share as long as neither writes
to it, and ends with it.
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

from shrinkfx import unpacked
from shrinkfx.check.client.line import Line
from shrinkfx.check.client.orphans import kill_marked, new_mark
from shrinkfx.check.client.server import log_in
from shrinkfx.errors import WorkerError
from shrinkfx.protocol.answers import Ending
from shrinkfx.protocol.requests import CheckOptions, Request
from shrinkfx.protocol.tasks import LINE, ForkServer

_CONNECT_S = 60.0


class Forking(Protocol):
    """A server that forks others; ``Server`` is one."""

    directory: Path

    def fork(self, request: Request) -> Ending: ...


class Fork:
    """One question at a time, which may be cancelled from another thread.

    Args:
        server: who forks it. Only the thread that asks the server may do that.
        options: of the candidates that it will be asked about.
        servers: how many share the disk.
        gpu: which of the server's it uses, where that has several.

    Attributes:
        birth: what the server has done for it.
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
        """Begin with a question.

        Raises:
            WorkerError: it does not listen any more.
        """
        with self._lock:
            self._line.write(request.to_line())

    def receive(self, request: Request) -> Ending:
        """Wait for the answer to what was sent.

        Raises:
            WorkerError: there will be none.
        """
        return self._line.receive(request)

    def cancel(self) -> None:
        """Have what was sent end soon, if it has not ended."""
        with self._lock, contextlib.suppress(WorkerError):  # who waits will be told
            self._line.cancel()

    @property
    def lives(self) -> bool:
        """Tell whether it can be asked, while it is not: it says nothing by itself."""
        return not self._line.can_be_read()

    def end(self) -> None:
        """End it and all that it started; whoever waits for an answer gets none."""
        with self._lock:
            self._line.closed = True
            with contextlib.suppress(OSError):  # it is gone
                self._socket.shutdown(socket.SHUT_RDWR)
        self._remove()

    def close(self) -> None:
        """End it, where nobody waits for an answer; safe to call twice."""
        self.end()
        self._socket.close()

    def _remove(self) -> None:
        kill_marked(self._mark)
        unpacked.remove(self.directory)

    @property
    def log(self) -> str:
        """The end of what it has written itself."""
        return log_in(self.directory)

    def how_it_died(self, doing: str) -> WorkerError:
        """Say that it has: only its server could know how."""
        return WorkerError(f"a fork of the worker died while {doing}", self.log)


def _bind(awaited: socket.socket, directory: Path) -> None:
    """Await the fork in its folder, whose name may be longer than a socket's."""
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
