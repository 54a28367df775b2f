"""Children that hold a context of a device before they are told what to do.

    server     asks --+-- hands over ----- supervises --> ending
                      |        |
    warm child        +-- makes a context, waits --> does it, as any child

To make a context takes seconds, and memory of the device, which nobody can make in the
server: CUDA does not survive a fork. A warm child has run no kernel. It does one piece
of work, as any child does: what has seen a fault is never used again.
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

from shrinkfx.processes import kill
from shrinkfx.protocol.requests import Request
from shrinkfx.worker.forkserver.supervise import Work, die_with_parent, live

MOST = 2
"""A server asks one at a time: while one is at work, one waits and one gets ready."""

_LEAST_FREE = 0.25
"""Part of a device's memory that must be free beside contexts; a check needs some."""

_PAUSE = 10
"""Checks for which no further child is made once memory was short."""

_TAKES_S = 10.0
_READY, _TAKEN = b"ready\n", b"taken\n"


class Device(Protocol):
    """How a process comes to a device."""

    def settings_of(self, request: Request) -> Hashable | None:
        """State what must be known before there is a context; None: none is needed."""
        ...

    def enter(self, request: Request) -> tuple[int, int]:
        """Make a context for such requests; tell the device's free and total bytes."""
        ...

    def is_well(self) -> bool:
        """Tell whether the context can be used still."""
        ...


@dataclass
class _Child:
    pid: int
    told: int
    tells: int

    def close(self) -> None:
        os.close(self.told)
        os.close(self.tells)

    def hears(self, timeout_s: float) -> bytes | None:
        """Read what it says; b'' where it has ended, None where it says nothing."""
        ready, _, _ = select.select([self.tells], [], [], timeout_s)
        return os.read(self.tells, 100) if ready else None


@dataclass
class WarmChildren:
    """The warm children of a server, for requests of like settings.

    Attributes:
        answerer: chooses what a child does for a request.
        apart: the server's children that are none of a check's, these among them.
        leave: closes in a child what is the server's alone.
    """

    device: Device
    answerer: Callable[[Request], Work]
    apart: set[int]
    leave: Callable[[], None] = lambda: None
    _waiting: list[_Child] = field(default_factory=list)
    _settings: Hashable | None = None
    _again: bool = False
    _pause: int = 0

    @property
    def heard(self) -> int:
        """How many have said that they are ready, or have ended."""
        told, _, _ = select.select([c.tells for c in self._waiting], [], [], 0.0)
        return len(told)

    def take(self, request: Request, folder: Path) -> int | None:
        """Hand a request over to a child that is ready; None where there is none.

        One that is still at its context, or was refused the memory for one, is none.
        """
        settings = self.device.settings_of(request)
        if settings is None:
            return None
        self._again = settings == self._settings
        if not self._again:
            self.end()
            self._settings = settings
        for child in [*self._waiting]:
            if child.pid not in self.apart:  # it has ended, and was waited for
                self._forget(child)
            elif (said := child.hears(0.0)) is not None:
                if said == _READY and _hands_over(child, request, folder):
                    self._waiting.remove(child)
                    child.close()
                    self.apart.discard(child.pid)
                    return child.pid
                self._forget(child)
        return None

    def refill(self, request: Request) -> None:
        """Have as many wait as are of use, for requests like the last two that came."""
        if not self._again or self.device.settings_of(request) != self._settings:
            return
        if self._pause:
            self._pause -= 1
            return
        while len(self._waiting) < MOST:
            self._waiting.append(self._born(request))
            self.apart.add(self._waiting[-1].pid)

    def end(self) -> None:
        """End all that wait."""
        for child in self._waiting:
            self._end(child)
        self._waiting.clear()

    def forget(self) -> None:
        """Leave them to the server that this process was forked from."""
        for child in self._waiting:
            child.close()
        self._waiting.clear()
        self._settings, self._again = None, False

    def _forget(self, child: _Child) -> None:
        """Do without a child that has ended: for want of memory, say."""
        self._waiting.remove(child)
        self._end(child)
        self._pause = _PAUSE

    def _end(self, child: _Child) -> None:
        child.close()
        if child.pid in self.apart:  # else its number may be another's by now
            kill(child.pid)

    def _born(self, request: Request) -> _Child:
        told, tell = os.pipe()
        heard, say = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        server = os.getpid()
        pid = os.fork()
        if pid == 0:
            os.close(tell)
            os.close(heard)
            self._wait(request, server, told, say)
        os.close(told)
        os.close(say)
        return _Child(pid, tell, heard)

    def _wait(self, request: Request, server: int, told: int, say: int) -> NoReturn:
        """Be a warm child: whatever happens, end here."""
        try:
            _settle(server)
            self.leave()
            for other in self._waiting:
                other.close()
            free, total = self.device.enter(request)
            if free < _LEAST_FREE * total:
                print(
                    f"no pre-warmed process: {free >> 20} of {total >> 20} MiB are free"
                )
                os._exit(0)
            os.write(say, _READY)
            with os.fdopen(told, "rb") as orders:
                folder, asked = orders.readline(), orders.readline()
            if asked.endswith(b"\n") and self.device.is_well():
                os.write(say, _TAKEN)
                os.close(say)
                work = self.answerer(Request.from_line(asked.decode()))
                live(work, Path(os.fsdecode(folder[:-1])), server)
        except BaseException:  # noqa: BLE001 - never to end in the server's code
            traceback.print_exc()  # into the server's log
        finally:
            with contextlib.suppress(OSError, ValueError):
                sys.stdout.flush()
            os._exit(0)


def _settle(server: int) -> None:
    """Be ended with the server, and by nothing that is meant for it."""
    os.setsid()
    die_with_parent(signal.SIGKILL)
    if os.getppid() != server:
        os._exit(1)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _hands_over(child: _Child, request: Request, folder: Path) -> bool:
    """Tell a child what to do; False if it cannot do that after all."""
    order = os.fsencode(folder) + b"\n" + request.to_line().encode()
    try:
        while order:
            order = order[os.write(child.told, order) :]
    except OSError:
        return False
    return child.hears(_TAKES_S) == _TAKEN
