"""What a user sees while a run goes on."""

from __future__ import annotations

import io

import pytest

from shrinkfx.failure.verdict import Outcome
from shrinkfx.progress import Plain, Progress, Quiet, Verbose
from shrinkfx.search.events import Checked, Event, Noted, Started, Stepped, Tried

EVENTS: list[Event] = [
    Noted("baseline: it fails"),
    Started(65, None),
    Checked(1, Outcome.PASSED, 65, 2.0, 480.0),
    Checked(2, Outcome.REPRODUCED, 65, 4.0, 420.0),
    Stepped(65, 49, "drop_nodes", 2, 4.0),
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


def test_bar_shows_operators_checks_rate_and_time_left() -> None:
    text = shown(Progress, EVENTS)
    last = text.rsplit("\r", 1)[-1]
    assert "65 operators, 2 checks" in text
    assert "/s" in text
    assert "7 min left" in text
    assert "65 -> 49 operators" in text
    assert "::" not in last


def test_bar_knows_how_many_checks_are_allowed() -> None:
    events: list[Event] = [Started(9, 50), Checked(1, Outcome.PASSED, 9, 1.0, None)]
    assert "9 operators, 1 of 50 checks" in shown(Progress, events)


def test_bar_of_a_sweep_ends_where_that_of_the_search_begins() -> None:
    events: list[Event] = [Tried("n = 3", "passes", ""), Started(9, None)]
    examples, search = shown(Progress, events).split("\n", 1)
    assert "n = 3, 1 examples" in examples.rsplit("\r", 1)[-1]
    assert "9 operators, 0 checks" in search
    assert "examples" not in search


@pytest.mark.parametrize("event", EVENTS)
def test_quiet_shows_nothing(event: Event, capsys: pytest.CaptureFixture[str]) -> None:
    Quiet()(event)
    assert capsys.readouterr() == ("", "")
