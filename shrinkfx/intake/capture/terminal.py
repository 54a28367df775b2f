"""The terminal, lent to a script that reads it.

A script has a process group of its own, so that Ctrl-C comes here: what hangs in native
code would not hear it. The kernel stops such a group when it reads the terminal; then
it is given that, and Ctrl-C with it, until it asks something of PyTorch.
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
    """Takes it back at the end of the block, if it was lent.

    Attributes:
        is_lent: Ctrl-C goes to the script alone.
    """

    def __init__(self) -> None:
        self.is_lent = False

    def lend_if_wanted(self, group: int) -> None:
        """Give it to a child that was stopped for reading it, and have that go on."""
        how = os.WSTOPPED | os.WNOHANG
        with contextlib.suppress(OSError, ValueError):
            stopped = os.waitid(os.P_PID, group, how)
            if stopped is None or stopped.si_status not in _WANTS_IT:
                return
            if os.tcgetpgrp(_STDIN) == os.getpgrp():  # and not a shell's or another's
                _give(group)
                self.is_lent = True
            os.killpg(group, signal.SIGCONT)

    def take_back(self) -> None:
        """Put this process in front again, if it was before."""
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
    """Put a group in front; who is not there itself would be stopped for that."""
    before = signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    try:
        os.tcsetpgrp(_STDIN, group)
    finally:
        signal.signal(signal.SIGTTOU, before)
