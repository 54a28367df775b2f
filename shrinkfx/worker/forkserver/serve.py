"""The loop of the server: it forks a child for each request, one at a time.

Requests come on stdin as lines of JSON. Answers go to another descriptor than stdout,
because compilers may write anything to stdout. When stdin closes, the server kills all
processes that it started, and ends.

On request, the server forks another server, which shares all loaded state, serves its
own connection at the same time, and ends with this server.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NoReturn, Protocol

from shrinkfx.protocol.answers import Answer, Done, Ending
from shrinkfx.protocol.record import Message
from shrinkfx.protocol.requests import LINE, MARK, ForkServer, Request
from shrinkfx.system import scratch
from shrinkfx.system.processes import kill_with_group, measure_own_cpu_s
from shrinkfx.worker.forkserver.supervise import (
    Note,
    Work,
    become_subreaper,
    die_with_parent,
    kill_descendants,
    run_child,
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
            scratch.remove_with_packages(self.directory)

    def _answer(self, request: Request) -> None:
        used = measure_own_cpu_s()
        work = _without_connection(self.line, self.answerer(request))
        used = measure_own_cpu_s() - used
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
        scratch.remove_packages(str(self.directory / _CHILD))

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
        scratch.remove_with_packages(directory)
        os._exit(128 + signal.SIGTERM)

    signal.signal(signal.SIGTERM, leave)


# Pre-warmed children, which create a device context before they get a request.
#
#     server               asks --+-- hands over ----- supervises --> ending
#                                 |        |
#     pre-warmed child            +-- makes a context, waits --> does it, as any child
#
# Creating a context takes seconds and memory of the device. The server cannot create
# it, because CUDA does not survive a fork. A pre-warmed child has run no kernel. It
# does one piece of work, as any child does, because a context that has seen a fault
# must not be used again.

MOST = 2
"""Requests come one at a time: while one runs, one child waits and one starts."""

_LEAST_FREE = 0.25
"""The part of a device's memory that must stay free for checks."""

_PAUSE = 10
"""The number of checks without new pre-warmed children after one has failed."""

_TAKES_S = 10.0
_READY, _TAKEN = b"ready\n", b"taken\n"


class Device(Protocol):
    """The interface for creating a context of a device in a process."""

    def settings_of(self, request: Request) -> Hashable | None:
        """Return the settings that a context depends on; None: it needs no context."""
        ...

    def enter(self, request: Request) -> tuple[int, int]:
        """Create a context for such requests; return the free and total bytes."""
        ...

    def is_well(self) -> bool:
        """Return whether the context is still usable."""
        ...


@dataclass
class _Child:
    pid: int
    request_pipe: int
    tells: int

    def close(self) -> None:
        os.close(self.request_pipe)
        os.close(self.tells)

    def read_message(self, timeout_s: float) -> bytes | None:
        """Read a message; b'' if the child has ended, None if there is no message."""
        ready, _, _ = select.select([self.tells], [], [], timeout_s)
        return os.read(self.tells, 100) if ready else None


@dataclass
class PrewarmedChildren:
    """The pre-warmed children of a server, for requests with equal settings.

    Attributes:
        device: creates the contexts.
        answerer: returns the work of a child for a request.
        unwatched: ids of the server's children that belong to no check, these included.
        leave: closes in a child the descriptors of the server.
    """

    device: Device
    answerer: Callable[[Request], Work]
    unwatched: set[int]
    leave: Callable[[], None] = lambda: None
    _waiting: list[_Child] = field(default_factory=list)
    _settings: Hashable | None = None
    _again: bool = False
    _pause: int = 0

    @property
    def settled_children(self) -> int:
        """The number of children that are ready or have ended."""
        settled, _, _ = select.select([c.tells for c in self._waiting], [], [], 0.0)
        return len(settled)

    def take_ready_child(self, request: Request, folder: Path) -> int | None:
        """Hand a request over to a child that is ready; return its id, or None.

        Children that still create their context, or lack memory for one, are not ready.
        """
        settings = self.device.settings_of(request)
        if settings is None:
            return None
        self._again = settings == self._settings
        if not self._again:
            self.end()
            self._settings = settings
        for child in [*self._waiting]:
            if child.pid not in self.unwatched:  # it has ended, and was reaped
                self._drop(child)
            elif (message := child.read_message(0.0)) is not None:
                if message == _READY and _send_request(child, request, folder):
                    self._waiting.remove(child)
                    child.close()
                    self.unwatched.discard(child.pid)
                    return child.pid
                self._drop(child)
        return None

    def refill(self, request: Request) -> None:
        """Start children up to ``MOST`` if the last two requests had equal settings."""
        if not self._again or self.device.settings_of(request) != self._settings:
            return
        if self._pause:
            self._pause -= 1
            return
        while len(self._waiting) < MOST:
            self._waiting.append(self._start_child(request))
            self.unwatched.add(self._waiting[-1].pid)

    def end(self) -> None:
        """End all waiting children."""
        for child in self._waiting:
            self._end(child)
        self._waiting.clear()

    def close_pipes(self) -> None:
        """Close, in a fork of the server, the pipes of the server's children."""
        for child in self._waiting:
            child.close()
        self._waiting.clear()
        self._settings, self._again = None, False

    def _drop(self, child: _Child) -> None:
        """Remove a child that has ended, for instance without memory, and pause."""
        self._waiting.remove(child)
        self._end(child)
        self._pause = _PAUSE

    def _end(self, child: _Child) -> None:
        child.close()
        if child.pid in self.unwatched:  # otherwise its number may be reused
            kill_with_group(child.pid)

    def _start_child(self, request: Request) -> _Child:
        request_read, request_write = os.pipe()
        reply_read, reply_write = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        server = os.getpid()
        pid = os.fork()
        if pid == 0:
            os.close(request_write)
            os.close(reply_read)
            self._run_prewarmed(request, server, request_read, reply_write)
        os.close(request_read)
        os.close(reply_write)
        return _Child(pid, request_write, reply_read)

    def _run_prewarmed(
        self, request: Request, server: int, request_read: int, reply_write: int
    ) -> NoReturn:
        """Run the pre-warmed child, and exit; never return."""
        try:
            _detach_prewarmed(server)
            self.leave()
            for other in self._waiting:
                other.close()
            free, total = self.device.enter(request)
            if free < _LEAST_FREE * total:
                print(
                    f"no pre-warmed process: {free >> 20} of {total >> 20} MiB are free"
                )
                os._exit(0)
            os.write(reply_write, _READY)
            with os.fdopen(request_read, "rb") as orders:
                folder, line = orders.readline(), orders.readline()
            if line.endswith(b"\n") and self.device.is_well():
                os.write(reply_write, _TAKEN)
                os.close(reply_write)
                work = self.answerer(Request.from_line(line.decode()))
                run_child(work, Path(os.fsdecode(folder[:-1])), server)
        except BaseException:  # noqa: BLE001 - never to end in the server's code
            traceback.print_exc()  # into the server's log
        finally:
            with contextlib.suppress(OSError, ValueError):
                sys.stdout.flush()
            os._exit(0)


def _detach_prewarmed(server: int) -> None:
    """Let the child end with the server, but not get the server's signals."""
    os.setsid()
    die_with_parent(signal.SIGKILL)
    if os.getppid() != server:
        os._exit(1)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _send_request(child: _Child, request: Request, folder: Path) -> bool:
    """Send the request to a child; return False if it cannot do the work."""
    data = os.fsencode(folder) + b"\n" + request.to_line().encode()
    try:
        while data:
            data = data[os.write(child.request_pipe, data) :]
    except OSError:
        return False
    return child.read_message(_TAKES_S) == _TAKEN
