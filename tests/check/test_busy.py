"""When a run says that the machine is busy, and what becomes of a check then."""

from __future__ import annotations

import pytest

from shrinkfx.check.limits import BusyNotice
from shrinkfx.failure.classify import classify_ending
from shrinkfx.protocol.answers import Ending
from shrinkfx.protocol.requests import CheckOriginal, Request

STARVED = Ending("exit", stage="done", seconds=60.0, waited_s=50.0, runnable=12)


def busy_notes(*endings: Ending) -> list[str]:
    lines: list[str] = []
    busyness = BusyNotice(lines.append, cores=2)
    for ending in endings:
        busyness.record_ending(ending)
    return lines


def test_busy_machine_is_reported_once() -> None:
    (line,) = busy_notes(STARVED, STARVED)
    busy = "the machine is busy (12 runnable processes on 2 cores)"
    assert line.startswith(
        f"{busy}: a check took 60 s, of which it waited 50 s for a core;"
    )


@pytest.mark.parametrize(
    "ending",
    [
        Ending("exit", seconds=60.0, waited_s=20.0, runnable=12),
        Ending("exit", seconds=4.0, waited_s=3.9, runnable=12),
        Ending("exit", seconds=60.0, waited_s=50.0, runnable=2),
    ],
    ids=["not much", "not long", "nobody else"],
)
def test_idle_machine_is_not_reported(ending: Ending) -> None:
    assert busy_notes(ending) == []


def test_timeout_on_a_busy_machine_is_unresolved() -> None:
    late = Ending("late", stage="run", seconds=600.0, waited_s=580.0, runnable=40)
    seen = classify_ending(late)
    assert seen.signature is None
    assert seen.unresolved == (
        "the machine is too busy: the check waited 580 of 600 s for a CPU, in run"
    )
    assert seen.own_seconds == pytest.approx(20)


def test_wall_clock_limit_defaults_to_a_multiple_of_the_timeout() -> None:
    assert Request(CheckOriginal(), timeout_s=60.0).wall_clock_limit_s == 1800
    assert Request(CheckOriginal(), timeout_s=60.0, clock_s=5.0).wall_clock_limit_s == 5
