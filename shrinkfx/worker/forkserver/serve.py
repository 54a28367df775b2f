"""The loop of the server: it forks a child for each request, one at a time.

Requests come on stdin as lines of JSON. Answers go to another descriptor than stdout,
because compilers may write anything to stdout. When stdin closes, the server kills all
processes that it started, and ends.

On request, the server forks another server, which shares all loaded state, serves its
own connection at the same time, and ends with this server.
"""

from __future__ import annotations

import json
import os
import resource
import select
import shutil
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from resource import RUSAGE_CHILDREN, RUSAGE_SELF

from shrinkfx.protocol.answers import Answer, Done, Ending
from shrinkfx.protocol.record import Message
from shrinkfx.protocol.requests import LINE, MARK, ForkServer, Request
from shrinkfx.system import unpacked
from shrinkfx.worker.forkserver.prewarmed import Device, PrewarmedChildren
from shrinkfx.worker.forkserver.supervise import (
    Note,
    Work,
    become_subreaper,
    die_with_parent,
    kill_descendants,
    supervise,
    tag_process,
)

CANCEL = "cancel"

_CHILD = "child-"
"""The prefix of the names of the children's folders."""

ChooseWork = Callable[[Request], Work]
"""Returns the work of a child for a request, and prepares state for it to inherit."""

OnEnding = Callable[[Request, Ending], None]
"""Called with a request and with how its child ended."""

OnFork = Callable[[ForkServer], None]
"""Called in a fork of the server before it serves."""


class ParentGone(Exception):
    """The parent has closed the connection."""


class Line:
    """The connection to the parent, for lines of JSON in both directions."""

    def __init__(self, source: int, sink: int) -> None:
        self._source = source
        self._sink = sink
        self._buffer = b""

    def read(self, timeout_s: float | None = None) -> str | None:
        """Return the next line, or None if none came in time.

        Raises:
            ParentGone: the other end is closed.
        """
        while b"\n" not in self._buffer:
            ready, _, _ = select.select([self._source], [], [], timeout_s)
            if not ready:
                return None
            try:
                data = os.read(self._source, 1 << 16)
            except ConnectionError:
                data = b""
            if not data:
                raise ParentGone
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line.decode()

    def write(self, message: Message) -> None:
        """Send a message.

        Raises:
            ParentGone: the other end is closed.
        """
        data = message.to_line().encode()
        try:
            while data:
                data = data[os.write(self._sink, data) :]
        except ConnectionError:
            raise ParentGone from None

    def close(self) -> None:
        os.close(self._source)
        os.close(self._sink)


def open_connection(log: Path) -> Line:
    """Turn this process into a server, and return the connection to the parent.

    The pipes of stdin and stdout become the connection. Later output goes to ``log``, a
    file in the server's directory. Until ``serve`` reads the connection, a signal from
    the kernel ends this process if the parent ends.
    """
    _become_server(os.environ.get(MARK, ""), log.parent)
    die_with_parent(signal.SIGTERM)
    line = Line(os.dup(0), os.dup(1))
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    _print_to(log)
    return line


def _become_server(mark: str, directory: Path) -> None:
    become_subreaper()
    tag_process(mark)
    _exit_on_sigterm(directory)


def _print_to(log: Path) -> None:
    sink = os.open(log, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    os.dup2(sink, 1)
    os.dup2(sink, 2)
    os.close(sink)


def serve(
    line: Line,
    answerer: ChooseWork,
    directory: Path,
    heard: OnEnding = lambda request, ending: None,
    forked: OnFork = lambda task: None,
    device: Device | None = None,
) -> None:
    """Answer requests until the parent closes the connection.

    Args:
        line: the connection.
        answerer: returns the work of a child for a request.
        directory: the folder of this server.
        heard: called after each request.
        forked: called in a fork of this server.
        device: the device whose context pre-warmed children create in advance; None
            for programs without one.
    """
    die_with_parent(0)
    _Server(line, directory, answerer, heard, forked, device).serve()


@dataclass
class _Server:
    """Serves one connection until it closes.

    Attributes:
        device: the device that children need a context of, or None.
        forks: process ids of forked servers and pre-warmed children.
    """

    line: Line
    directory: Path
    answerer: ChooseWork
    heard: OnEnding
    forked: OnFork
    device: Device | None = None
    number: int = 0
    forks: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        arguments = self.answerer, self.forks, self.line.close
        self.warm = PrewarmedChildren(self.device, *arguments) if self.device else None

    def serve(self) -> None:
        try:
            while True:
                text = self.line.read()
                if text is None or json.loads(text) == CANCEL:
                    continue  # the check to cancel has already ended
                self._answer(Request.from_line(text))
        except ParentGone:
            pass
        finally:
            kill_descendants()
            unpacked.remove_with_packages(self.directory)

    def _answer(self, request: Request) -> None:
        used = used_cpu_s()
        work = _without_connection(self.line, self.answerer(request))
        used = used_cpu_s() - used
        if isinstance(request.task, ForkServer):
            self._fork(request.task)
            done = Ending("exit", 0, "done", answer=Done(), cpu_seconds=used)
            self.line.write(done)
            return
        self.number += 1
        folder = self.directory / f"{_CHILD}{self.number}"
        folder.mkdir()
        warm = self._hand_to_prewarmed(request, folder)
        ending = supervise(work, request, folder, self._cancelled, self.forks, warm)
        self.heard(request, ending)
        self.line.write(replace(ending, cpu_seconds=ending.cpu_seconds + used))
        shutil.rmtree(folder, ignore_errors=True)
        # A child may have unpacked a package that other children load, too.
        unpacked.remove_packages(str(self.directory / _CHILD))

    def _hand_to_prewarmed(self, request: Request, folder: Path) -> int | None:
        """Give the request to a pre-warmed child, if there is one, and start others."""
        if self.warm is None:
            return None
        child = self.warm.take_ready_child(request, folder)
        self.warm.refill(request)
        return child

    def _cancelled(self) -> bool:
        text = self.line.read(timeout_s=0)
        return text is not None and json.loads(text) == CANCEL

    def _fork(self, task: ForkServer) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        server = os.getpid()
        if fork := os.fork():
            self.forks.add(fork)
            return
        status = 1
        try:
            if self.warm is not None:
                self.warm.close_pipes()
            self.line.close()
            line = _open_fork_connection(task, server)
            self.forked(task)
            directory = Path(task.directory)
            arguments = self.answerer, self.heard, self.forked, self.device
            _Server(line, directory, *arguments).serve()
            status = 0
        except BaseException:  # noqa: BLE001 - never to end in the server's code
            traceback.print_exc()
        finally:
            os._exit(status)


def _open_fork_connection(task: ForkServer, server: int) -> Line:
    """Turn this fork into a server with its own connection; end with the old one."""
    os.setsid()
    directory = Path(task.directory)
    _become_server(task.mark, directory)
    die_with_parent(signal.SIGTERM)
    if os.getppid() != server:
        os._exit(1)
    _print_to(directory / "server.log")
    line = socket.socket(socket.AF_UNIX)
    # A socket's path may have 107 bytes; the path of the folder may be longer.
    folder = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    line.connect(f"/proc/self/fd/{folder}/{LINE}")
    os.close(folder)
    return Line(os.dup(line.fileno()), line.detach())


def used_cpu_s() -> float:
    """Return the CPU-seconds of this process and of its children that have ended."""
    usages = (resource.getrusage(who) for who in (RUSAGE_SELF, RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def _without_connection(line: Line, work: Work) -> Work:
    """Return the work with the connection closed in the child.

    If processes that a child leaves kept it open, the parent would not notice the end
    of the server, and whatever they write there would be taken for an answer.
    """

    def detached_work(note: Note, folder: Path) -> Answer:
        line.close()
        return work(note, folder)

    return detached_work


def _exit_on_sigterm(directory: Path) -> None:
    server = os.getpid()

    def leave(*_: object) -> None:
        if os.getpid() != server:  # a process that was forked during loading
            os._exit(128 + signal.SIGTERM)
        kill_descendants()
        unpacked.remove_with_packages(directory)
        os._exit(128 + signal.SIGTERM)

    signal.signal(signal.SIGTERM, leave)
