"""Standard streams that cannot end a run by being closed, full or unread; SIGTERM."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from typing import TextIO, cast


def open_closed_streams() -> None:
    """Open ``/dev/null`` for each standard stream that was closed (``2>&-``).

    Otherwise, the next file that is opened gets the number of the closed stream. If
    that file is the journal, messages would be written into it.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free
            os.set_inheritable(number, True)
            mode = "r" if number == 0 else "w"
            # Never closed, like the standard streams that Python opens.
            setattr(sys, name, open(number, mode, closefd=False))  # noqa: SIM115


def redirect_to_devnull(stream: TextIO) -> None:
    """Redirect a stream to ``/dev/null``, including its buffered text."""
    with contextlib.suppress(OSError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


class LenientStream:
    """A stream that discards text if it cannot be written.

    Attributes:
        error: the first error of a write, or None.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.error: OSError | None = None

    def write(self, text: str) -> int:
        with self._catch_error():
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with self._catch_error():
            self._stream.flush()

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)

    @contextlib.contextmanager
    def _catch_error(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self.error = self.error or error
            redirect_to_devnull(self._stream)


@contextlib.contextmanager
def use_lenient_streams() -> Iterator[LenientStream]:
    """Replace stdout and stderr by lenient streams in the block.

    At the end, report on stderr if writing to stdout failed. A closed pipe is not
    reported, because the reader of the pipe chose to stop reading.
    """
    stdout, stderr = LenientStream(sys.stdout), LenientStream(sys.stderr)
    with (
        contextlib.redirect_stdout(cast(TextIO, stdout)),
        contextlib.redirect_stderr(cast(TextIO, stderr)),
    ):
        try:
            yield stdout
        finally:
            stdout.flush()
            if stdout.error and not isinstance(stdout.error, BrokenPipeError):
                why = stdout.error.strerror
                problem = f"cannot write to stdout: {why}; the results of a run"
                print(f"shrinkfx: {problem} are in its folder", file=sys.stderr)
            stderr.flush()


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
