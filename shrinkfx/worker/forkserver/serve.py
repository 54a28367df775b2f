"""The server's loop: one request at a time, each answered by a child.

Requests come on stdin as JSON lines, answers leave on a descriptor of their
own: stdout belongs to compilers, which may write to it what they like. The
server ends, with all that it started, when its stdin closes.

Asked to, it forks a server like itself, which has all that is loaded, answers beside
it on a line of its own, and ends with it.
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

from shrinkfx import unpacked
from shrinkfx.protocol.answers import Answer, Done, Ending
from shrinkfx.protocol.record import Message
from shrinkfx.protocol.requests import MARK, Request
from shrinkfx.protocol.tasks import LINE, ForkServer
from shrinkfx.worker.forkserver.supervise import (
    Note,
    Work,
    bear_mark,
    become_subreaper,
    die_with_parent,
    kill_descendants,
    supervise,
)
from shrinkfx.worker.forkserver.warm import Device, WarmChildren

CANCEL = "cancel"

_CHILD = "child-"
"""How the folders of children are called."""

Answerer = Callable[[Request], Work]
"""Choose what a child does for a request, and have ready what it finds when born."""

Heard = Callable[[Request, Ending], None]
"""Learn how a child ended."""

Forked = Callable[[ForkServer], None]
"""Settle in a fork of the server, before it answers."""


class ParentGone(Exception):
    """Nobody is left to answer to."""


class Line:
    """The parent's end of the line: whole lines in, whole lines out."""

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


def take_line(log: Path) -> Line:
    """Become a server: take the parent's pipe off stdin and stdout.

    What is printed from now on goes to ``log``, in the server's directory.
    Until ``serve`` polls the pipe, the kernel tells of the parent's end.
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
    bear_mark(mark)
    _leave_on_sigterm(directory)


def _print_to(log: Path) -> None:
    sink = os.open(log, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    os.dup2(sink, 1)
    os.dup2(sink, 2)
    os.close(sink)


def serve(
    line: Line,
    answerer: Answerer,
    directory: Path,
    heard: Heard = lambda request, ending: None,
    forked: Forked = lambda task: None,
    device: Device | None = None,
) -> None:
    """Answer requests until the parent closes the line.

    Args:
        device: where children may need a context, which some then have before they
            are asked.
    """
    die_with_parent(0)
    _Server(line, directory, answerer, heard, forked, device).serve()


@dataclass
class _Server:
    """Answers what comes on a line, and ends with it.

    Attributes:
        device: of which children need a context, or None.
        forks: servers of their own below this process, and warm children.
    """

    line: Line
    directory: Path
    answerer: Answerer
    heard: Heard
    forked: Forked
    device: Device | None = None
    number: int = 0
    forks: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        about = self.answerer, self.forks, self.line.close
        self.warm = WarmChildren(self.device, *about) if self.device else None

    def serve(self) -> None:
        try:
            while True:
                text = self.line.read()
                if text is None or json.loads(text) == CANCEL:
                    continue  # the check to cancel has ended meanwhile
                self._answer(Request.from_line(text))
        except ParentGone:
            pass
        finally:
            kill_descendants()
            unpacked.remove(self.directory)

    def _answer(self, request: Request) -> None:
        used = used_cpu_s()
        work = _off_the_line(self.line, self.answerer(request))
        used = used_cpu_s() - used
        if isinstance(request.task, ForkServer):
            self._fork(request.task)
            done = Ending("exit", 0, "done", answer=Done(), cpu_seconds=used)
            self.line.write(done)
            return
        self.number += 1
        folder = self.directory / f"{_CHILD}{self.number}"
        folder.mkdir()
        warm = self._taken(request, folder)
        ending = supervise(work, request, folder, self._cancelled, self.forks, warm)
        self.heard(request, ending)
        self.line.write(replace(ending, cpu_seconds=ending.cpu_seconds + used))
        shutil.rmtree(folder, ignore_errors=True)
        # One of these may have compiled a package that others of them load.
        unpacked.clear(str(self.directory / _CHILD))

    def _taken(self, request: Request, folder: Path) -> int | None:
        """Have a warm child do it, if there is one, and the next get ready."""
        if self.warm is None:
            return None
        child = self.warm.take(request, folder)
        self.warm.refill(request)
        return child

    def _cancelled(self) -> bool:
        word = self.line.read(timeout_s=0)
        return word is not None and json.loads(word) == CANCEL

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
                self.warm.forget()
            self.line.close()
            line = _take_line_of_fork(task, server)
            self.forked(task)
            directory = Path(task.directory)
            about = self.answerer, self.heard, self.forked, self.device
            _Server(line, directory, *about).serve()
            status = 0
        except BaseException:  # noqa: BLE001 - never to end in the server's code
            traceback.print_exc()
        finally:
            os._exit(status)


def _take_line_of_fork(task: ForkServer, server: int) -> Line:
    """Become a server beside the one that has forked this process, and end with it."""
    os.setsid()
    directory = Path(task.directory)
    _become_server(task.mark, directory)
    die_with_parent(signal.SIGTERM)
    if os.getppid() != server:
        os._exit(1)
    _print_to(directory / "server.log")
    line = socket.socket(socket.AF_UNIX)
    # The name of a socket may have 107 letters, and the folder's more.
    folder = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    line.connect(f"/proc/self/fd/{folder}/{LINE}")
    os.close(folder)
    return Line(os.dup(line.fileno()), line.detach())


def used_cpu_s() -> float:
    """Count the CPU-seconds of this process, and of children that it waited for."""
    own = (resource.getrusage(who) for who in (RUSAGE_SELF, RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in own)


def _off_the_line(line: Line, work: Work) -> Work:
    """Close the line in the child.

    Held open by what a child leaves behind, it would hide the server's death
    from the parent, and whatever is written there would pass for an answer.
    """

    def alone(note: Note, folder: Path) -> Answer:
        line.close()
        return work(note, folder)

    return alone


def _leave_on_sigterm(directory: Path) -> None:
    server = os.getpid()

    def leave(*_: object) -> None:
        if os.getpid() != server:  # a process that loading has forked
            os._exit(128 + signal.SIGTERM)
        kill_descendants()
        unpacked.remove(directory)
        os._exit(128 + signal.SIGTERM)

    signal.signal(signal.SIGTERM, leave)
