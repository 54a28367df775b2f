"""Remove shrinkfx's frames from the tracebacks of uncaught exceptions."""

from __future__ import annotations

import functools
import os
import sys
import threading
from itertools import pairwise
from types import TracebackType

_PACKAGE = os.path.dirname(os.path.abspath(__file__))


def hide_own_frames() -> None:
    """Wrap Python's exception hooks so that they print tracebacks without our frames.

    A traceback that the script formats itself still contains them.
    """
    original, thread_hook = sys.excepthook, threading.excepthook

    @functools.wraps(original)
    def hook(
        kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        _strip(error)
        original(kind, error, without_own(trace))

    @functools.wraps(thread_hook)
    def of_thread(arguments: threading.ExceptHookArgs) -> None:
        if arguments.exc_value is not None:
            _strip(arguments.exc_value)
        exc = arguments.exc_value
        trace = exc.__traceback__ if exc else arguments.exc_traceback
        parts = (arguments.exc_type, exc, trace, arguments.thread)
        thread_hook(threading.ExceptHookArgs(parts))

    sys.excepthook, threading.excepthook = hook, of_thread


def without_own(trace: TracebackType | None) -> TracebackType | None:
    """Unlink the frames of this package from a traceback."""
    frames: list[TracebackType] = []
    while trace is not None:
        if os.path.dirname(trace.tb_frame.f_code.co_filename) != _PACKAGE:
            frames.append(trace)
        trace = trace.tb_next
    for each, following in pairwise([*frames, None]):
        if each is not None:
            each.tb_next = following
    return frames[0] if frames else None


def _strip(error: BaseException | None) -> None:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        error.__traceback__ = without_own(error.__traceback__)
        error = error.__cause__ or error.__context__
