"""Treat SIGTERM as Ctrl-C."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator


@contextlib.contextmanager
def ended_as_by_ctrl_c() -> Iterator[None]:
    """Take SIGTERM for Ctrl-C: with it ``timeout`` and job runners end what takes long.

    Not where Ctrl-C is ignored, as it is by what a script runs in the background.
    """
    takes_it = (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGINT) is signal.default_int_handler
        and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    )
    if takes_it:
        signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        yield
    finally:
        if takes_it:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
