"""Progress of a run on a terminal: a live line, plain lines, or nothing."""

from __future__ import annotations

import math
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import NoReturn, TextIO

from tqdm import tqdm

from shrinkfx.events import (
    ActivityStarted,
    Event,
    NoteAdded,
    PhaseEntered,
    QueryAnswered,
    QueryStarted,
    RunStarted,
    SearchStarted,
    SizesTried,
    StepTaken,
)


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
        self._pulse = Pulse(self._say, EVERY_S)

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
            return f"check {check}: {outcome}; {_counted(operators, 'operator')} so far"
        case SizesTried(sizes, answer, detail):
            return f"{sizes}: {answer}" + (f" ({detail})" if detail else "")
        case SearchStarted(operators):
            return f"searching among {_counted(operators, 'operator')}"
    return str(event)


def _step(event: StepTaken) -> str:
    """Render what a step reduced: operators, bytes of inputs, or "simplified"."""
    if event.before != event.after:
        noun = "operator" if event.after == 1 else "operators"
        return f"{event.before} -> {event.after} {noun}"
    before, after = event.bytes_of_inputs or (0, 0)
    if before == after:
        return "simplified"
    if before < after:
        return f"simplified; inputs and weights: {before:,} -> {after:,} bytes"
    return f"{before:,} -> {after:,} bytes of inputs and weights"


EVERY_S = 60.0


class Pulse:
    """Prints from a thread of its own when nothing was printed for a minute.

    Args:
        say: prints a line.
        every_s: seconds of silence before a line.
    """

    def __init__(self, say: Callable[[str], None], every_s: float) -> None:
        self._say = say
        self._every_s = every_s
        self._began = self._last_print = time.monotonic()
        self._doing = self._state = ""
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def take(self, event: Event) -> None:
        """Update the current work from an event, and start the thread if necessary."""
        match event:
            case RunStarted("report"):
                self._doing = "reading the folder of the run"
            case RunStarted(_, model):
                self._doing = f"starting PyTorch for {model}"
            case ActivityStarted(text):
                self._doing = text
            case SearchStarted(operators):
                self._state = f" ({_counted(operators, 'operator')})"
            case QueryAnswered(check, _, operators):
                self._state = (
                    f" ({_counted(operators, 'operator')} after check {check})"
                )
            case SizesTried(sizes):
                self._state = f", last at {sizes}"
        if self._thread is None:
            self._ended.clear()
            self._thread = threading.Thread(target=self._beat, daemon=True)
            self._thread.start()

    def restart_timer(self) -> None:
        """Restart the minute, because a line was printed."""
        self._last_print = time.monotonic()

    def close(self) -> None:
        """Print nothing more until the next event."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
        self._thread = None

    def _beat(self) -> None:
        while not self._ended.wait(self._last_print + self._every_s - time.monotonic()):
            now = time.monotonic()
            if now - self._last_print >= self._every_s:
                self._last_print = now
                minutes = (now - self._began) / 60
                self._say(f"[after {minutes:.0f} min] {self._doing}{self._state}")


_RATE_OF = 20
"""Number of the last checks over which the displayed rate is averaged."""

_LEAST_RATE_S = 0.05
"""No rate is shown below this mean, because such verdicts come from the journal."""

_LEAST_TRIED = 8
"""The minimum width of the current step in characters; it is omitted if it gets
fewer.
"""


class Live:
    """Collects the events of a run and renders them as one line of the terminal."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = clock()
        self._phase = self._tried = ""
        self._unit, self._count = "check", 0
        self._operators: int | None = None
        self._most: int | None = None
        self._is_checking = False
        self._forget()

    def _forget(self) -> None:
        """Reset the measured rate and time, as for a new phase."""
        self._times: deque[float] = deque(maxlen=_RATE_OF + 1)
        self._expected_s: float | None = None
        self._ends_at: float | None = None

    def take(self, event: Event) -> None:
        """Update the state from an event."""
        match event:
            case RunStarted(_, model):
                self._tried = f"starting PyTorch for {model}"
            case PhaseEntered(phase):
                self._phase, self._tried, self._is_checking = phase, "", False
                self._forget()
            case SearchStarted(operators, max_checks):
                self._unit, self._count = "check", 0
                self._operators, self._most = operators, max_checks
            case QueryStarted(strategy, operators):
                is_smaller = self._operators is None or operators < self._operators
                self._tried = f"{strategy} to {operators}" if is_smaller else strategy
                self._is_checking = True
            case ActivityStarted(text) if not self._is_checking:
                self._tried = text
            case QueryAnswered():
                self._take_check(event)
            case StepTaken(_, after):
                self._operators = after
            case SizesTried(sizes):
                self._unit, self._tried = "example", sizes
                self._count += 1
                self._times.append(self._clock())

    def _take_check(self, event: QueryAnswered) -> None:
        self._count, self._operators = event.check, event.operators
        self._is_checking = False
        self._times.append(event.seconds)
        self._expected_s = event.expected_s
        remaining_s = event.seconds_left
        self._ends_at = None if remaining_s is None else self._clock() + remaining_s

    def text(self, width: int) -> str:
        """Render the line in ``width`` characters; cut the current step first."""
        head, *rest = self._heads()
        space = width - len(head) - 2
        if self._tried and space >= min(_LEAST_TRIED, len(self._tried)):
            return f"{head}: {_cut(self._tried, space)}"
        fitting = (each for each in (head, *rest) if len(each) <= width)
        return next(fitting, head)[:width]

    def _heads(self) -> Iterator[str]:
        """Yield the line without the current step: the full form, then shorter ones."""
        where = f"{self._phase} {self._elapsed()}".lstrip()
        counted = []
        if self._operators is not None:
            counted.append(_counted(self._operators, "operator"))
        if self._count and self._most is not None:
            counted.append(f"{self._count} of {_counted(self._most, self._unit)}")
        elif self._count:
            counted.append(_counted(self._count, self._unit))
        remaining, rate = self._time_left(), self._rate()
        for timed, fast in ((remaining, rate), (remaining, ""), ("", "")):
            details = ", ".join([*counted, *([fast] if fast else [])])
            begin = f"{where}, {timed}" if timed else where
            yield f"{begin}; {details}" if details else begin

    def _elapsed(self) -> str:
        minutes, seconds = divmod(int(self._clock() - self._began), 60)
        hours, minutes = divmod(minutes, 60)
        start = f"{hours}:{minutes:02}" if hours else f"{minutes}"
        return f"{start}:{seconds:02}"

    def _rate(self) -> str:
        if len(self._times) < 2:
            return ""
        each = (self._times[-1] - self._times[0]) / (len(self._times) - 1)
        if each < _LEAST_RATE_S:
            return ""
        return f"{each:.1f} s each" if each < 10 else f"{each:.0f} s each"

    def _time_left(self) -> str:
        """Render the expected time of the search, or its time limit if that is less.

        Neither includes the phases after the search.
        """
        limit_s = math.inf if self._ends_at is None else self._ends_at - self._clock()
        if self._expected_s is not None and self._expected_s < limit_s:
            return f"about {format_duration(self._expected_s)} more"
        if 0 < limit_s < math.inf:
            return f"at most {format_duration(limit_s, up=True)} more"
        return ""


def format_duration(seconds: float, *, up: bool = False) -> str:
    """Render a duration, to the nearest unit or, with ``up``, rounded up."""
    rounded = math.ceil if up else round
    if seconds < 90:
        return f"{max(1, rounded(seconds / 10)) * 10} s"
    if seconds < 5400:
        return f"{rounded(seconds / 60)} min"
    return f"{rounded(seconds / 360) / 10} h"


def _counted(number: int, unit: str) -> str:
    return f"{number} {unit}" if number == 1 else f"{number} {unit}s"


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 3]}..."
