"""The parent's end of the connection to a server: whole lines in both directions."""

from __future__ import annotations

import contextlib
import math
import os
import select
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Protocol, TypeVar

from shrinkfx.errors import WorkerError
from shrinkfx.protocol.answers import Ending
from shrinkfx.protocol.record import Message
from shrinkfx.protocol.requests import CLOCK_LIMIT_FACTOR, Request
from shrinkfx.system.own_time import OwnTime


@contextlib.contextmanager
def held_interrupt() -> Iterator[Callable[[], bool]]:
    """Delay Ctrl-C to the end of the block.

    An interrupt at any other moment would leave half a line in the pipe, or an answer
    that is never read. Only the main thread gets interrupts; another handler stays in
    force.

    Yields:
        A function that tells whether Ctrl-C was pressed.
    """
    signals: list[int] = []
    if (
        threading.current_thread() is not threading.main_thread()
        or signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    ):
        yield lambda: False
        return
    signal.signal(signal.SIGINT, lambda number, _: signals.append(number))
    try:
        yield lambda: bool(signals)
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if signals:
            signal.raise_signal(signal.SIGINT)


_GRACE_S, _GLANCE_S = 60.0, 0.1

MessageT = TypeVar("MessageT", bound=Message)


class OtherEnd(Protocol):
    """The process at the other end, whose state explains a missing answer."""

    @property
    def log(self) -> str:
        """The end of its log."""
        ...

    def make_death_error(self, doing: str) -> WorkerError:
        """Create the error for a process that has closed the connection."""
        ...


class Line:
    """Sends requests and reads the answers.

    Args:
        source: the file descriptor to read from.
        sink: the non-blocking file descriptor to write to.
        other: the process at the other end.

    Attributes:
        closed: nothing can be sent any more.
    """

    def __init__(self, source: int, sink: int, other: OtherEnd) -> None:
        self._source, self._sink, self._other = source, sink, other
        self._buffer = b""
        self.closed = False

    def ask(self, request: Request, interrupted: Callable[[], bool]) -> Ending:
        """Send a request and wait for its end, which comes sooner if interrupted.

        Raises:
            WorkerError: the other end is dead or silent; it cannot answer again.
        """
        self.write(request.to_line())
        return self.receive(request, interrupted)

    def receive(
        self, request: Request, interrupted: Callable[[], bool] = bool
    ) -> Ending:
        """Wait for the end of a request that was sent."""
        doing = request.task.doing
        if not self.wait(request.wall_clock_limit_s + _GRACE_S, doing, interrupted):
            self.cancel()
            self.wait(_GRACE_S, "cancelling")
        return self.parse_answer(Ending, doing)

    def cancel(self) -> None:
        """Let the running request end; do nothing if it has ended."""
        self.write('"cancel"\n')

    def write(
        self,
        line: str,
        timeout_s: float = _GRACE_S,
        doing: str = "waiting for a request",
    ) -> None:
        """Send a line.

        Raises:
            WorkerError: the other end does not accept it.
        """
        if self.closed:
            raise WorkerError("the worker is closed")
        data = line.encode()
        while data:
            if not _ready(self._sink, select.POLLOUT, timeout_s):
                raise WorkerError(
                    "the worker does not accept requests", self._other.log
                )
            try:
                data = data[os.write(self._sink, data) :]
            except ConnectionError:
                raise self._other.make_death_error(doing) from None

    def wait(
        self,
        timeout_s: float,
        doing: str,
        interrupted: Callable[[], bool] = bool,
        clock: OwnTime | None = None,
        deadline: float = math.inf,
    ) -> bool:
        """Wait for a line; False if interrupted before there is one.

        Args:
            clock: a clock without waiting times, which the limit is for; the wall-time
                limit is ``CLOCK_LIMIT_FACTOR`` as long then.
            deadline: an earlier limit, by ``time.monotonic``.

        Raises:
            WorkerError: there will be no line, or none in time.
        """
        most_s = timeout_s * (CLOCK_LIMIT_FACTOR if clock else 1)
        deadline = min(deadline, time.monotonic() + most_s)
        while b"\n" not in self._buffer:
            if interrupted():
                return False
            hangs = clock is not None and clock.exceeds(timeout_s)
            if hangs or time.monotonic() > deadline:
                reason = f"the worker did not answer in {timeout_s:.0f} s ({doing})"
                raise WorkerError(reason, self._other.log)
            if _ready(self._source, select.POLLIN, _GLANCE_S):
                self._buffer += self._read(doing)
        return True

    def can_be_read(self) -> bool:
        """Tell whether there is data to read, or the other end is closed."""
        return bool(self._buffer) or _ready(self._source, select.POLLIN, 0)

    def _read(self, doing: str) -> bytes:
        try:
            data = os.read(self._source, 1 << 16)
        except ConnectionError:
            data = b""
        if not data:
            raise self._other.make_death_error(doing)
        return data

    def parse_answer(self, kind: type[MessageT], doing: str) -> MessageT:
        """Parse the line that was waited for.

        Raises:
            WorkerError: it is not such a record.
        """
        line, _, self._buffer = self._buffer.partition(b"\n")
        try:
            return kind.from_line(line)
        except (ValueError, TypeError, AttributeError, LookupError):
            text = line[:200].decode(errors="replace")
            reason = f"the worker sent an invalid message ({text!r}) while {doing}"
            raise WorkerError(reason, self._other.log) from None


def _ready(descriptor: int, event: int, timeout_s: float) -> bool:
    poll = select.poll()  # select() refuses descriptors from 1024 on
    poll.register(descriptor, event)
    return bool(poll.poll(timeout_s * 1000))
