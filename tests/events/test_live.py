"""The live line, event by event."""

from __future__ import annotations

import pytest

from shrinkfx.events import (
    ActivityStarted,
    Event,
    Phase,
    PhaseEntered,
    QueryAnswered,
    QueryStarted,
    RunStarted,
    SearchStarted,
    SizesTried,
    StepTaken,
)
from shrinkfx.events.terminal import Live, format_duration
from shrinkfx.failure.verdict import Outcome


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
