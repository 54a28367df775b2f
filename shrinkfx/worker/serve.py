"""The server's loop: one request at a time, each answered by a child.

Requests come on stdin as JSON lines, answers leave on a descriptor of their
own: stdout belongs to compilers, which may write to it what they like. The
server ends, with all that it started, when its stdin closes.
"""

from __future__ import annotations

import json
import os
import select
import shutil
from collections.abc import Callable
from pathlib import Path

from shrinkfx.program.messages import Message, Request
from shrinkfx.worker.supervise import Work, become_subreaper, supervise

CANCEL = "cancel"

Answerer = Callable[[Request], Work]
"""Choose what a child does for a request."""


class ParentGone(Exception):
    """Nobody is left to answer to."""


class Line:
    """The parent's end of the line: whole lines in, whole lines out."""

    def __init__(self, source: int, sink: int) -> None:
        self._source = source
        self._sink = sink
        self._buffer = b""

    def read(self, timeout_s: float | None = None) -> str | None:
        """Return the next line, or None if none came in time.

        Raises:
            ParentGone: the other end is closed.
        """
        while b"\n" not in self._buffer:
            ready, _, _ = select.select([self._source], [], [], timeout_s)
            if not ready:
                return None
            data = os.read(self._source, 1 << 16)
            if not data:
                raise ParentGone
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line.decode()

    def write(self, message: Message) -> None:
        data = message.to_line().encode()
        while data:
            data = data[os.write(self._sink, data) :]


def take_line(log: Path) -> Line:
    """Move the parent's pipe off stdin and stdout, and stdout to a log file."""
    line = Line(os.dup(0), os.dup(1))
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    sink = os.open(log, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    os.dup2(sink, 1)
    os.dup2(sink, 2)
    return line


def serve(line: Line, answerer: Answerer, directory: Path) -> None:
    """Answer requests until the parent closes the line."""
    become_subreaper()
    number = 0

    def cancelled() -> bool:
        word = line.read(timeout_s=0)
        return word is not None and json.loads(word) == CANCEL

    try:
        while True:
            text = line.read()
            if text is None or json.loads(text) == CANCEL:
                continue  # the check to cancel has ended meanwhile
            request = Request.from_line(text)
            number += 1
            folder = directory / f"child-{number}"
            folder.mkdir()
            line.write(supervise(answerer(request), request, folder, cancelled))
            shutil.rmtree(folder, ignore_errors=True)
    except ParentGone:
        pass
    finally:
        shutil.rmtree(directory, ignore_errors=True)
