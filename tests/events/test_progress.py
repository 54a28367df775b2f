"""What a user sees while a run goes on."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import io
import json
import os
import pty
import re
import struct
import termios
import threading
import time

import pytest
from support.terminals import read_to_the_end

from shrinkfx.cli.task_output import Json
from shrinkfx.errors import UsageError
from shrinkfx.events import (
    ActivityStarted,
    Event,
    NoteAdded,
    Phase,
    PhaseEntered,
    QueryAnswered,
    QueryStarted,
    RunEnded,
    RunStarted,
    SearchStarted,
    SizesTried,
    StepTaken,
    terminal,
)
from shrinkfx.events.terminal import Plain, Progress, Pulse, Verbose
from shrinkfx.failure.verdict import Outcome

EVENTS: list[Event] = [
    NoteAdded("baseline: it fails"),
    SearchStarted(65, None),
    QueryAnswered(1, Outcome.PASSED, 65, 2.0, 480.0),
    QueryAnswered(2, Outcome.REPRODUCED, 65, 4.0, 420.0),
    StepTaken(65, 49, "drop_nodes", 2, 4.0),
]


def shown(listener: type[Plain] | type[Progress], events: list[Event]) -> str:
    stream = io.StringIO()
    shower = listener(stream)
    for event in events:
        shower(event)
    shower.close()
    return stream.getvalue()


def test_plain_shows_one_line_per_step() -> None:
    assert shown(Plain, EVENTS).splitlines() == [
        "baseline: it fails",
        "65 -> 49 operators  drop_nodes  check 2  4 s",
    ]


def test_verbose_shows_every_check() -> None:
    lines = shown(Verbose, EVENTS).splitlines()
    assert "check 1: passed; 65 operators so far" in lines
    assert len(lines) == 4


@pytest.fixture(name="_at_once")
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Show each event, however soon after another."""
    monkeypatch.setattr(terminal, "_SHOWN_S", 0.0)


@pytest.mark.usefixtures("_at_once")
def test_live_line_scrolls_steps_and_is_cleared_at_the_end() -> None:
    text = shown(Progress, EVENTS)
    assert "0:00; 65 operators" in text
    assert "baseline: it fails\n" in text
    assert "65 -> 49 operators  drop_nodes  check 2  4 s\n" in text
    assert re.search(r"\r +\r$", text)


@pytest.mark.usefixtures("_at_once")
def test_live_line_continues_below_other_output() -> None:
    """As the sum of a sweep is, which a reduction follows."""
    stream = io.StringIO()
    with contextlib.closing(Progress(stream)) as shower:
        shower(SizesTried("n = 3", "passes", ""))
        shower.close()
        stream.write("2 sizes run\n")
        shower(NoteAdded("searching"))
        below = stream.getvalue().partition("2 sizes run\n")[2]
    assert "searching\n" in below
    assert "1 example: n = 3" in below


@pytest.mark.usefixtures("_at_once")
def test_live_line_fits_80_columns_if_width_is_unknown() -> None:
    asking = QueryStarted("a_strategy_of_somebody" * 4, 3)
    text = shown(
        Progress, [SearchStarted(972, 5000), asking, ActivityStarted("x" * 200)]
    )
    assert max(map(len, re.split(r"[\r\n]", text))) == 79


@pytest.mark.usefixtures("_at_once")
def test_live_line_is_redrawn_over_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal, "_TICK_S", 0.02)
    stream = io.StringIO()
    with contextlib.closing(Progress(stream)) as shower:
        shower(ActivityStarted("running it"))
        deadline = time.monotonic() + 120
        while stream.getvalue().count("0:00: running it") < 5:
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_pulse_reports_the_current_activity_during_silence() -> None:
    said: list[str] = []
    spoken = threading.Event()

    def say(text: str) -> None:
        said.append(text)
        spoken.set()

    events: list[tuple[Event, str]] = [
        (RunStarted("reduce", "m.pt2"), "[0 min] starting PyTorch for m.pt2"),
        (ActivityStarted("running it"), "[0 min] running it"),
        (SearchStarted(65, None), "[0 min] running it, 65 operators"),
        (EVENTS[2], "[0 min] running it, 65 operators after check 1"),
        (SizesTried("n = 3", "passes", ""), "[0 min] running it, last at n = 3"),
    ]
    with contextlib.closing(Pulse(say, every_s=0.05)) as beat:
        for event, expected in events:
            beat.take(event)
            for _ in range(2):  # the first may have been on its way
                spoken.clear()
                assert spoken.wait(30)
            assert said[-1] == expected
    count = len(said)
    time.sleep(0.2)
    assert len(said) == count
    with contextlib.closing(beat):  # of a sweep that a reduction follows
        beat.take(ActivityStarted("reducing it"))
        spoken.clear()
        assert spoken.wait(30)
    assert said[-1] == "[0 min] reducing it, last at n = 3"


@pytest.mark.usefixtures("_at_once")
@pytest.mark.parametrize(
    ("rows", "columns", "widest"), [(24, 40, 39), (24, 200, 73), (0, 0, 73)]
)
def test_live_line_fits_the_terminal_even_without_a_size(
    rows: int, columns: int, widest: int
) -> None:
    ours, theirs = pty.openpty()
    size = struct.pack("HHHH", rows, columns, 0, 0)
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, size)
    with open(theirs, "w") as stream, contextlib.closing(Progress(stream)) as shower:
        shower(PhaseEntered(Phase.BASELINE))
        shower(
            ActivityStarted(
                "compiling or running the program as it is, again and again"
            )
        )
    lines = re.split(r"[\r\n]", read_to_the_end(ours))
    assert max(map(len, lines)) == widest
    assert any(text.startswith("baseline 0:00: compiling") for text in lines)


class FullDisk(io.StringIO):
    """Takes some lines, and then no more."""

    def __init__(self, lines: int) -> None:
        super().__init__()
        self._left = lines

    def write(self, text: str) -> int:
        if self.getvalue().count("\n") >= self._left:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().write(text)


def test_run_is_not_started_if_events_cannot_be_written() -> None:
    with pytest.raises(UsageError, match=r"left on device\. The run was not started"):
        Json(FullDisk(0))(RunStarted("reduce", "m.pt2"))


def test_run_continues_if_the_event_disk_is_full(
    capsys: pytest.CaptureFixture[str],
) -> None:
    stream = FullDisk(1)
    told = Json(stream)
    for event in (RunStarted("reduce", "m.pt2"), EVENTS[2], RunEnded("reduced", 0)):
        told(event)
    assert json.loads(stream.getvalue())["event"] == "start"
    said = capsys.readouterr().err
    assert said.startswith("--json: cannot write to stdout: No space left")
    assert "; the run continues without events" in said
