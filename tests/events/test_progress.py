"""What a user sees while a run goes on, in a terminal and from minify."""

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
from pathlib import Path

import pytest
from support.terminals import read_to_the_end

from shrinkfx import api as reducing
from shrinkfx import minify
from shrinkfx.api import Reduction
from shrinkfx.cli.task_output import Json
from shrinkfx.errors import UsageError
from shrinkfx.events import (
    ActivityStarted,
    Event,
    Listener,
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
from shrinkfx.events.terminal import (
    Live,
    Plain,
    Progress,
    Pulse,
    Verbose,
    format_duration,
    make_display,
    render_event,
)
from shrinkfx.failure.signature import Kind, Signature, Stage
from shrinkfx.failure.verdict import Outcome
from shrinkfx.options.options import Options
from shrinkfx.testing import chain, whole

# What a user sees while a run goes on.


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
        (RunStarted("reduce", "m.pt2"), "[after 0 min] starting PyTorch for m.pt2"),
        (ActivityStarted("running it"), "[after 0 min] running it"),
        (SearchStarted(65, None), "[after 0 min] running it (65 operators)"),
        (EVENTS[2], "[after 0 min] running it (65 operators after check 1)"),
        (SizesTried("n = 3", "passes", ""), "[after 0 min] running it, last at n = 3"),
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
    assert said[-1] == "[after 0 min] reducing it, last at n = 3"


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


# The live line, event by event.


class Clock:
    """Tells what it was told."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


def checked(
    number: int,
    seconds: float,
    left: float | None = None,
    expected: float | None = None,
) -> QueryAnswered:
    about = Outcome.PASSED, 12, seconds, left
    return QueryAnswered(number, *about, "drop_nodes", expected_s=expected)


RUN: list[tuple[float, Event, str]] = [
    (0, RunStarted("reduce", "m.pt2"), "0:00: starting PyTorch for m.pt2"),
    (1, PhaseEntered(Phase.BASELINE), "baseline 0:01"),
    (9, ActivityStarted("compiling it"), "baseline 0:09: compiling it"),
    (60, PhaseEntered(Phase.SEARCH), "search 1:00"),
    (60, SearchStarted(87, None), "search 1:00; 87 operators"),
    (61, QueryStarted("drop_nodes", 43), "search 1:01; 87 operators: drop_nodes to 43"),
    (62, ActivityStarted("compiling"), "search 1:02; 87 operators: drop_nodes to 43"),
    (64, checked(1, 64.0), "search 1:04; 12 operators, 1 check: drop_nodes to 43"),
    (
        65,
        StepTaken(87, 10, "drop_nodes", 1, 64.0),
        "search 1:05; 10 operators, 1 check: d",
    ),
    (
        70,
        checked(2, 67.1, None, 42.0),
        "search 1:10, about 40 s more; 12 operators, 2 checks, 3.1 s each: dro",
    ),
    (
        75,
        ActivityStarted("measuring"),
        "search 1:15, about 40 s more; 12 operators, 2 checks, 3.1 s",
    ),
    (80, PhaseEntered(Phase.PLAINER), "simplifying 1:20; 12 operators, 2 checks"),
    (
        81,
        QueryStarted("shrink_sizes", 12),
        "simplifying 1:21; 12 operators, 2 checks: shrink",
    ),
    (99, PhaseEntered(Phase.VERIFICATION), "verifying 1:39; 12 operators, 2 checks"),
    (
        100,
        ActivityStarted("running repro.py"),
        "verifying 1:40; 12 operators, 2 checks: running repro.py",
    ),
    (
        4000,
        PhaseEntered(Phase.EXPLANATION),
        "explaining 1:06:40; 12 operators, 2 checks",
    ),
]


def test_live_line_shows_phase_time_operators_checks_and_activity() -> None:
    clock = Clock()
    live = Live(clock)
    for at, event, said in RUN:
        clock.now = 1000 + at
        live.take(event)
        text = live.text(79)
        assert text.startswith(said)
        assert len(text) <= 79


def searching(clock: Clock, *events: Event) -> Live:
    live = Live(clock)
    for event in (PhaseEntered(Phase.SEARCH), SearchStarted(972, 5000), *events):
        live.take(event)
    return live


def test_live_line_cuts_activity_then_rate_then_remaining_time() -> None:
    checks = checked(1, 2.0), checked(2, 5.1, 100.0), QueryStarted("drop_nodes", 6)
    live = searching(Clock(), *checks)
    head = "search 0:00, at most 2 min more; 12 operators, 2 of 5000 checks"
    assert live.text(120) == f"{head}, 3.1 s each: drop_nodes to 6"
    assert live.text(90) == f"{head}, 3.1 s each: drop_nodes..."
    assert live.text(80) == f"{head}, 3.1 s each"
    assert live.text(70) == head
    assert live.text(50) == "search 0:00; 12 operators, 2 of 5000 checks"
    for width in range(120):
        assert len(live.text(width)) <= width


@pytest.mark.parametrize(
    ("left", "expected", "said"),
    [
        (None, None, ""),
        (None, 43.0, "about 40 s more"),
        (130.0, None, "at most 3 min more"),
        (130.0, 43.0, "about 40 s more"),
        (30.0, 43.0, "at most 30 s more"),
        (0.0, None, ""),
    ],
)
def test_remaining_time_is_the_lesser_of_estimate_and_budget(
    left: float | None, expected: float | None, said: str
) -> None:
    head = (
        searching(Clock(), checked(1, 2.0, left, expected)).text(200).partition(";")[0]
    )
    assert head == f"search 0:00, {said}".removesuffix(", ")


def test_budget_runs_down_between_checks_and_is_hidden_when_spent() -> None:
    clock = Clock()
    live = searching(clock, checked(1, 2.0, 30.0))
    clock.now += 15
    assert "at most 20 s more" in live.text(200)
    clock.now += 15
    assert "more" not in live.text(200)


def test_cached_answers_have_no_rate() -> None:
    live = searching(Clock(), *(checked(n, 60 + n / 1000) for n in range(9)))
    assert "each" not in live.text(200)


def test_rate_is_computed_from_the_last_checks() -> None:
    early = [checked(n, 100.0 * n) for n in range(30)]
    live = searching(Clock(), *early, *(checked(30 + n, 3000 + n) for n in range(40)))
    assert "1.0 s each" in live.text(200)


def test_sweep_phase_counts_examples() -> None:
    clock = Clock()
    live = Live(clock)
    live.take(PhaseEntered(Phase.SWEEP))
    for size in (3, 4, 5):
        clock.now += 2
        live.take(SizesTried(f"n = {size}", "passes", ""))
    assert live.text(80) == "sweep 0:06; 3 examples, 2.0 s each: n = 5"
    live.take(PhaseEntered(Phase.SEARCH))
    live.take(SearchStarted(9, None))
    assert live.text(80) == "search 0:06; 9 operators"


def test_upper_bound_duration_is_rounded_up() -> None:
    seconds = [1, 9, 41, 89, 91, 130, 3000, 5399, 5401, 8000]
    words = [format_duration(s, up=True) for s in seconds]
    assert words[:6] == ["10 s", "10 s", "50 s", "90 s", "2 min", "3 min"]
    assert words[6:] == ["50 min", "90 min", "1.6 h", "2.3 h"]
    assert [format_duration(s) for s in (1, 41, 130, 8000)] == [
        "10 s",
        "40 s",
        "2 min",
        "2.2 h",
    ]


# What ``minify`` prints: lines while a run goes on, and the result at its end.


def test_progress_goes_to_stderr_unless_quiet(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    came = reduction_of(Path("out/repro.py"))

    def reduce(_: Options, listener: Listener) -> Reduction:
        listener(NoteAdded("baseline: it fails"))
        return came

    monkeypatch.setattr(reducing, "reduce", reduce)
    minify("model.pt2")
    assert capsys.readouterr() == ("", f"baseline: it fails\n{came}\n")
    minify("model.pt2", quiet=True)
    assert capsys.readouterr() == ("", "")
    told: list[Event] = []
    minify("model.pt2", listener=told.append)
    assert capsys.readouterr() == ("", "")


def test_result_repr_is_one_line_and_str_is_the_summary() -> None:
    came = reduction_of(Path("out/repro.py"))
    assert repr(came) == (
        "<Reduction: reduced, 12 -> 1 operators, exception in run, out/repro.py>"
    )
    first, *_, last = str(came).splitlines()
    assert first == (
        "result:   reduced from 12 to 1 operator; no single operator can be removed; "
        "3 checks, 4 s"
    )
    assert last == "next:     shrinkfx --explain out"


def test_terminal_gets_a_live_line_and_a_pipe_plain_lines() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    assert isinstance(make_display(Terminal()), Progress)
    assert isinstance(make_display(io.StringIO()), Plain)


def reduction_of(repro: Path) -> Reduction:
    failure = Signature(Kind.EXCEPTION, Stage.RUN, text="it `is` so\nor not")
    return Reduction(
        status="reduced",
        candidate=whole(chain("x", "relu")),
        signature=failure,
        seen=failure,
        minimal=True,
        operators=(12, 1),
        checks=3,
        seconds=4.0,
        verified=(3, 3),
        repro=repro,
        summary={"rate": {"before": 1.0, "after": 1.0}, "other_failures": []},
    )


def test_step_that_removes_no_operator_is_not_shown_as_a_reduction() -> None:
    step = StepTaken(1, 1, "merge_inputs", 14, 64.0)
    assert render_event(step).split()[0] == "simplified"
    grows = StepTaken(1, 1, "simplify_dtypes", 14, 64.0, (288, 2080))
    assert render_event(grows).startswith(
        "simplified; inputs and weights: 288 -> 2,080"
    )
