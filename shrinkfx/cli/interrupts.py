"""Treat SIGTERM as Ctrl-C."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator


@contextlib.contextmanager
def treat_sigterm_as_ctrl_c() -> Iterator[None]:
    """Treat SIGTERM as Ctrl-C in the block.

    ``timeout`` and job runners send SIGTERM to stop a command. If the process ignores
    Ctrl-C, like a background process of a script, SIGTERM keeps its default action.
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
