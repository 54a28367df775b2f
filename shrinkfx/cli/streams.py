"""Standard streams that are closed or full, or that nobody reads: no end of a run."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import TextIO, cast


def open_closed() -> None:
    """Have each standard stream that was closed (``2>&-``) lead nowhere.

    The next file to be opened would take its number: what is said would be written
    into the journal.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free
            os.set_inheritable(number, True)
            mode = "r" if number == 0 else "w"
            # Open to the end, as what Python opens itself is.
            setattr(sys, name, open(number, mode, closefd=False))  # noqa: SIM115


def silence(stream: TextIO) -> None:
    """Have a stream lead nowhere, with what it still holds back."""
    with contextlib.suppress(OSError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


class Lenient:
    """A stream that goes on where nothing can be written.

    Attributes:
        error: why the first line was lost, or None.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.error: OSError | None = None

    def write(self, text: str) -> int:
        with self._going_on():
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with self._going_on():
            self._stream.flush()

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)

    @contextlib.contextmanager
    def _going_on(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self.error = self.error or error
            silence(self._stream)


@contextlib.contextmanager
def lenient() -> Iterator[Lenient]:
    """Print to streams that go on, and say at the end what could not be printed.

    Not where the reader of a pipe has left: it has seen what it wanted.
    """
    stdout, stderr = Lenient(sys.stdout), Lenient(sys.stderr)
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
                said = f"cannot write to stdout: {why}; the results of a run"
                print(f"shrinkfx: {said} are in its folder", file=sys.stderr)
            stderr.flush()
