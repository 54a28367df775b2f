"""Pre-warmed children, which create a device context before they get a request.

    server               asks --+-- hands over ----- supervises --> ending
                                |        |
    pre-warmed child            +-- makes a context, waits --> does it, as any child

Creating a context takes seconds and memory of the device. The server cannot create it,
because CUDA does not survive a fork. A pre-warmed child has run no kernel. It does one
piece of work, as any child does, because a context that has seen a fault must not be
used again.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import traceback
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn, Protocol

from shrinkfx.protocol.requests import Request
from shrinkfx.system.processes import kill_with_group
from shrinkfx.worker.forkserver.supervise import Work, die_with_parent, run_child

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
