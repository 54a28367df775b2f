"""Lend the terminal to a script that reads it.

A script runs in its own process group, so that Ctrl-C reaches shrinkfx, because a
script that hangs in native code cannot handle it. The kernel stops such a group when it
reads the terminal. The script then gets the terminal, and Ctrl-C with it, until it
begins a step in PyTorch.
"""

from __future__ import annotations

import contextlib
import os
import signal
from types import TracebackType
from typing import Self

_STDIN = 0
_WANTS_IT = (signal.SIGTTIN, signal.SIGTTOU)


class Terminal:
    """Lends the terminal, and takes it back at the end of the ``with`` block.

    Attributes:
        is_lent: whether Ctrl-C reaches only the script.
    """

    def __init__(self) -> None:
        self.is_lent = False

    def lend_if_wanted(self, group: int) -> None:
        """Give the terminal to a child that was stopped for reading it; continue it."""
        flags = os.WSTOPPED | os.WNOHANG
        with contextlib.suppress(OSError, ValueError):
            stopped = os.waitid(os.P_PID, group, flags)
            if stopped is None or stopped.si_status not in _WANTS_IT:
                return
            if os.tcgetpgrp(_STDIN) == os.getpgrp():  # we have the terminal
                _give(group)
                self.is_lent = True
            os.killpg(group, signal.SIGCONT)

    def take_back(self) -> None:
        """Make this process the foreground group again if the terminal was lent."""
        if self.is_lent:
            with contextlib.suppress(OSError, ValueError):
                _give(os.getpgrp())
            self.is_lent = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.take_back()


def _give(group: int) -> None:
    """Make a group the foreground group.

    SIGTTOU is ignored meanwhile, because it would stop a background process that does
    this.
    """
    before = signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    try:
        os.tcsetpgrp(_STDIN, group)
    finally:
        signal.signal(signal.SIGTTOU, before)
