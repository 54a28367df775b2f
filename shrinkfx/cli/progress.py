"""What a user sees while a run goes on: a live line, plain lines, or nothing."""

from __future__ import annotations

import json
import math
import os
import sys
import time
from dataclasses import asdict
from typing import NoReturn, TextIO

from tqdm import tqdm

from shrinkfx.cli.live import Live
from shrinkfx.cli.pulse import Pulse
from shrinkfx.cli.streams import silence
from shrinkfx.errors import UsageError
from shrinkfx.events import (
    Begun,
    Caught,
    Checked,
    Ended,
    Event,
    Failed,
    Noted,
    Seen,
    Spanned,
    Started,
    Stepped,
    Tried,
)

SCHEMA = 1
"""Of the lines of ``--json``; fields are added without another number."""

NAMES: dict[type[Event], str] = {
    Begun: "start",
    Seen: "baseline",
    Spanned: "baseline",
    Checked: "check",
    Tried: "check",
    Stepped: "step",
    Failed: "step",
    Caught: "by-catch",
    Ended: "end",
}
"""What ``--json`` calls an event; others are for people only."""


class Quiet:
    """Show nothing."""

    def __call__(self, event: Event) -> None:
        """Take an event."""

    def close(self) -> None:
        """Leave the terminal as it was."""


class Json(Quiet):
    """One JSON object per line, for other programs.

    Where the reader leaves, or the disk is full, in the middle of a run, that goes on.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._began = time.monotonic()

    def __call__(self, event: Event) -> None:
        name = NAMES.get(type(event))
        if name is None:
            return
        elapsed = round(time.monotonic() - self._began, 3)
        data = {"event": name, "schema": SCHEMA, "elapsed": elapsed, **asdict(event)}
        try:
            print(json.dumps(data), file=self._stream, flush=True)
        except BrokenPipeError:
            silence(self._stream)
        except OSError as error:
            silence(self._stream)
            lost = f"--json: stdout cannot be written to: {error.strerror}"
            if isinstance(event, Begun):
                raise UsageError(f"{lost}. Nothing was begun") from error
            print(f"{lost}; no more events, the run goes on", file=sys.stderr)


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
    return f"{NAMES[type(event)]}: {event}"


def _step(event: Stepped) -> str:
    """Say what has become less: operators, else bytes, else what there is to read."""
    if event.given is None or event.before != event.after:
        return f"{event.before} -> {event.after} operators"
    before, after = event.given
    return f"{before:,} -> {after:,} bytes given" if before != after else "plainer"
