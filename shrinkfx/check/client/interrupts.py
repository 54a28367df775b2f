"""Delay Ctrl-C until the connection to a worker is in a consistent state."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator


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
