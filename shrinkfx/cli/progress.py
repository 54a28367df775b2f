"""What a user sees while a run goes on: a bar, plain lines, or nothing."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict
from typing import NoReturn, TextIO

from tqdm import tqdm

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

_BAR = "{desc}, {n_fmt} checks [{elapsed}, {rate_fmt}{postfix}]"
_BAR_WITH_TOTAL = (
    "{desc}, {n_fmt} of {total_fmt} checks [{elapsed}, {rate_fmt}{postfix}]"
)


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


class Progress(Quiet):
    """A bar of checks; notes and accepted steps scroll above it."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._bar: tqdm[NoReturn] | None = None
        self._pulse = Pulse(self._go_on)

    def __call__(self, event: Event) -> None:
        self._pulse.take(event)
        match event:
            case Started(operators, max_checks):
                self._begin(max_checks, "checks")
                self._describe(f"{operators} operators")
            case Checked():
                self._advance(event)
            case Tried(sizes):
                if self._bar is None:
                    self._begin(None, "examples")
                self._describe(sizes)
                self._step()
            case Noted() | Stepped():
                tqdm.write(line(event), file=self._stream)
                self._pulse.spoke()

    def _go_on(self, text: str) -> None:
        """Show that time goes by."""
        if self._bar is None:
            tqdm.write(text, file=self._stream)
        else:
            self._bar.refresh()

    def _begin(self, total: int | None, unit: str) -> None:
        self._close_bar()
        form = _BAR if total is None else _BAR_WITH_TOTAL
        self._bar = tqdm(
            total=total,
            unit=f" {unit}",
            file=self._stream,
            bar_format=form.replace("checks", unit),
            dynamic_ncols=True,
        )

    def _describe(self, text: str) -> None:
        if self._bar is not None:
            self._bar.set_description_str(text, refresh=False)

    def _step(self) -> None:
        if self._bar is not None:
            self._bar.update()

    def _advance(self, event: Checked) -> None:
        self._describe(f"{event.operators} operators")
        if self._bar is not None:
            self._bar.set_postfix_str(_time_left(event), refresh=False)
        self._step()

    def _close_bar(self) -> None:
        if self._bar is not None:
            self._bar.close()

    def close(self) -> None:
        self._pulse.close()
        self._close_bar()


def _time_left(event: Checked) -> str:
    """Say what the search will still take, and that of the budget if it is less."""
    expected, allowed = event.expected_s, event.seconds_left
    if expected is not None and (allowed is None or expected < allowed):
        return f"about {_in_words(expected)} left"
    return "" if allowed is None else f"{_in_words(allowed)} left"


def _in_words(seconds: float) -> str:
    if seconds < 90:
        return f"{max(1, round(seconds / 10)) * 10} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


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
