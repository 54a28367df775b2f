"""A run on a terminal while it goes on: a live line, plain lines, or nothing."""

from __future__ import annotations

import math
import os
import time
from typing import NoReturn, TextIO

from tqdm import tqdm

from shrinkfx.events import Checked, Event, Noted, Started, Stepped, Tried
from shrinkfx.progress.live import Live
from shrinkfx.progress.pulse import Pulse


class Quiet:
    """Show nothing."""

    def __call__(self, event: Event) -> None:
        """Take an event."""

    def close(self) -> None:
        """Leave the terminal as it was."""


class Plain(Quiet):
    """One line per accepted step, for logs and pipes."""

    shown: tuple[type[Event], ...] = (Noted, Stepped)

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._pulse = Pulse(self._say)

    def __call__(self, event: Event) -> None:
        self._pulse.take(event)
        if isinstance(event, self.shown):
            self._say(line(event))

    def _say(self, text: str) -> None:
        self._stream.write(f"{text}\n")  # at once: another thread may speak
        self._stream.flush()
        self._pulse.spoke()

    def close(self) -> None:
        self._pulse.close()


class Verbose(Plain):
    """One line per check as well."""

    shown = (Noted, Stepped, Checked, Tried)


_TICK_S = 1.0
"""How often the live line shows that time goes by."""

_SHOWN_S = 0.1
"""How often it is shown at most, while an earlier session is recalled say."""

_ROWS = 20
_COLUMNS = 80
"""Of a terminal that does not say how large it is."""


class Progress(Quiet):
    """A live line; notes and accepted steps scroll above it."""

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
        if isinstance(event, (Noted, Stepped)):
            tqdm.write(line(event), file=self._stream)
        self._pulse.take(event)

    def _show(self, _: str = "") -> None:
        if self._bar is None:
            return
        now = time.monotonic()
        is_due = now - self._shown >= _SHOWN_S
        if is_due:
            self._shown = now
        # A line of all columns would be broken by some terminals.
        text = self._live.text(_columns(self._stream) - 1)
        self._bar.set_description_str(text, refresh=is_due)

    def close(self) -> None:
        self._pulse.close()
        if self._bar is not None:
            self._bar.close()
        self._bar = None


def on_stream(stream: TextIO) -> Quiet:
    """Show a run as fits: a live line on a terminal, plain lines elsewhere."""
    return Progress(stream) if stream.isatty() else Plain(stream)


def _bar(stream: TextIO) -> tqdm[NoReturn]:
    """Make what shows a line, also where a terminal does not say how high it is."""
    return tqdm(file=stream, bar_format="{desc}", leave=False, nrows=_ROWS)


def _columns(stream: TextIO) -> int:
    try:
        return os.get_terminal_size(stream.fileno()).columns or _COLUMNS
    except (OSError, ValueError):
        return _COLUMNS


def line(event: Event) -> str:
    """Say in one line what happened."""
    match event:
        case Noted(text):
            return text
        case Stepped(_, _, strategy, check, seconds):
            return f"{_step(event)}  {strategy}  check {check}  {seconds:.0f} s"
        case Checked(check, outcome, operators):
            return f"check {check}: {outcome}; {operators} operators so far"
        case Tried(sizes, answer, said):
            return f"{sizes}: {answer}" + (f" ({said})" if said else "")
        case Started(operators):
            return f"searching among {operators} operators"
    return str(event)


def _step(event: Stepped) -> str:
    """Say what has become less: operators, else bytes, else what there is to read."""
    if event.given is None or event.before != event.after:
        noun = "operator" if event.after == 1 else "operators"
        return f"{event.before} -> {event.after} {noun}"
    before, after = event.given
    if before == after:
        return "simplified"
    return f"{before:,} -> {after:,} bytes of inputs"
