"""Ctrl-C at a moment that suits the line to a worker."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def held_interrupt() -> Iterator[Callable[[], bool]]:
    """Hold Ctrl-C back to the end of the block, which is told of it.

    Raised wherever it happens to arrive, it would leave half a line in the pipe
    or an answer that nobody reads. Only the main thread meets it, and whoever
    has set another handler has other plans.
    """
    caught: list[int] = []
    if (
        threading.current_thread() is not threading.main_thread()
        or signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    ):
        yield lambda: False
        return
    signal.signal(signal.SIGINT, lambda number, _: caught.append(number))
    try:
        yield lambda: bool(caught)
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if caught:
            signal.raise_signal(signal.SIGINT)
