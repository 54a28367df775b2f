"""Progress of a run on a terminal: a live line, plain lines, or nothing."""

from __future__ import annotations

import math
import os
import time
from typing import NoReturn, TextIO

from tqdm import tqdm

from shrinkfx.events import (
    Event,
    NoteAdded,
    QueryAnswered,
    SearchStarted,
    SizesTried,
    StepTaken,
)
from shrinkfx.progress.live import Live
from shrinkfx.progress.pulse import Pulse


class Quiet:
    """Shows nothing."""

    def __call__(self, event: Event) -> None:
        """Ignore an event."""

    def close(self) -> None:
        """Restore the terminal."""


class Plain(Quiet):
    """Prints one line per accepted step, for logs and pipes."""

    shown: tuple[type[Event], ...] = (NoteAdded, StepTaken)

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._pulse = Pulse(self._say)

    def __call__(self, event: Event) -> None:
        self._pulse.take(event)
        if isinstance(event, self.shown):
            self._say(render_event(event))

    def _say(self, text: str) -> None:
        self._stream.write(f"{text}\n")  # one call, because another thread may print
        self._stream.flush()
        self._pulse.restart_timer()

    def close(self) -> None:
        self._pulse.close()


class Verbose(Plain):
    """Prints one line per check as well."""

    shown = (NoteAdded, StepTaken, QueryAnswered, SizesTried)


_TICK_S = 1.0
"""Seconds between updates of the elapsed time."""

_SHOWN_S = 0.1
"""Least seconds between two updates, for example while verdicts are recalled fast."""

_ROWS = 20
_COLUMNS = 80
"""Columns, and above rows, of a terminal that does not report its size."""


class Progress(Quiet):
    """Shows a live line; notes and accepted steps scroll above it."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._bar: tqdm[NoReturn] | None = None
        self._live = Live()
        self._shown = -math.inf
        self._pulse = Pulse(self._show, every_s=_TICK_S)

    def __call__(self, event: Event) -> None:
        self._live.take(event)
        if self._bar is None:
            self._bar = _bar(self._stream)
        self._show()
        if isinstance(event, (NoteAdded, StepTaken)):
            tqdm.write(render_event(event), file=self._stream)
        self._pulse.take(event)

    def _show(self, _: str = "") -> None:
        if self._bar is None:
            return
        now = time.monotonic()
        is_due = now - self._shown >= _SHOWN_S
        if is_due:
            self._shown = now
        # Some terminals would wrap a line that fills all columns.
        text = self._live.text(_columns(self._stream) - 1)
        self._bar.set_description_str(text, refresh=is_due)

    def close(self) -> None:
        self._pulse.close()
        if self._bar is not None:
            self._bar.close()
        self._bar = None


def make_display(stream: TextIO) -> Quiet:
    """Return a display that fits: a live line on a terminal, plain lines elsewhere."""
    return Progress(stream) if stream.isatty() else Plain(stream)


def _bar(stream: TextIO) -> tqdm[NoReturn]:
    """Return a tqdm bar of one line, also for a terminal that reports no height."""
    return tqdm(file=stream, bar_format="{desc}", leave=False, nrows=_ROWS)


def _columns(stream: TextIO) -> int:
    try:
        return os.get_terminal_size(stream.fileno()).columns or _COLUMNS
    except (OSError, ValueError):
        return _COLUMNS


def render_event(event: Event) -> str:
    """Render an event in one line."""
    match event:
        case NoteAdded(text):
            return text
        case StepTaken(_, _, strategy, check, seconds):
            return f"{_step(event)}  {strategy}  check {check}  {seconds:.0f} s"
        case QueryAnswered(check, outcome, operators):
            return f"check {check}: {outcome}; {operators} operators so far"
        case SizesTried(sizes, answer, detail):
            return f"{sizes}: {answer}" + (f" ({detail})" if detail else "")
        case SearchStarted(operators):
            return f"searching among {operators} operators"
    return str(event)


def _step(event: StepTaken) -> str:
    """Render what a step reduced: operators, bytes of inputs, or "simplified"."""
    if event.bytes_of_inputs is None or event.before != event.after:
        noun = "operator" if event.after == 1 else "operators"
        return f"{event.before} -> {event.after} {noun}"
    before, after = event.bytes_of_inputs
    if before == after:
        return "simplified"
    return f"{before:,} -> {after:,} bytes of inputs"
