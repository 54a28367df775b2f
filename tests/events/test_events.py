"""The lines of ``--json``: what other programs follow a run by."""

from __future__ import annotations

import io
import json
import os
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args

import pytest

from shrinkfx import api
from shrinkfx.cli.main import main
from shrinkfx.cli.task_output import EVENT_NAMES, Json
from shrinkfx.events import (
    ActivityStarted,
    BaselineFound,
    Event,
    NoteAdded,
    OtherFailureFound,
    PhaseEntered,
    QueryAnswered,
    QueryStarted,
    RunEnded,
    RunStarted,
    SearchStarted,
    SizesFound,
    SizesTried,
    StepTaken,
    SweepFailureFound,
)
from shrinkfx.failure.verdict import Outcome
from shrinkfx.report.record import OtherFailure
from shrinkfx.search.asker import Asker
from shrinkfx.search.reducer import Reducer
from shrinkfx.search.strategy import choose
from shrinkfx.testing import FakeOracle, calls, chain, whole

EVENTS: list[tuple[Event, list[str]]] = [
    (RunStarted("reduce", "model.pt2", "out"), ["start"]),
    (BaselineFound("assert", "run", "out of bounds", 1.0, 67, 65), ["baseline"]),
    (SizesFound(({"name": "s59"},), {"seed": 0}), ["baseline"]),
    (
        QueryAnswered(1, Outcome.DIFFERENT, 65, 2.0, None, "drop_nodes", 40, "nan"),
        ["check"],
    ),
    (SizesTried("s59=1", "fails", "nan"), ["check"]),
    (StepTaken(65, 49, "drop_nodes", 2, 4.0), ["step"]),
    (SweepFailureFound("s59=1", "nan", "compare", "output 0"), ["step"]),
    (
        OtherFailureFound("nan", "compare", "output 0", 3, "1a2b", 2),
        ["other-failure", "by-catch"],
    ),
    (RunEnded("reduced", 0, "", {"operators": [65, 2]}), ["end"]),
]


class Stream(io.StringIO):
    """Counts how often it was flushed."""

    flushes = 0

    def flush(self) -> None:
        self.flushes += 1


def objects(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_each_event_is_one_line_and_flushed_at_once() -> None:
    stream = Stream()
    told = Json(stream)
    for event, names in EVENTS:
        before = stream.flushes
        told(event)
        assert stream.flushes == before + len(names)
        printed = objects(stream.getvalue())[before:]
        assert [line["event"] for line in printed] == names
    lines = objects(stream.getvalue())
    assert {line["schema"] for line in lines} == {1}
    assert lines == sorted(lines, key=lambda line: float(line["elapsed"]))
    assert lines[3]["outcome"] == "different"


def test_events_for_the_terminal_are_not_written_as_json() -> None:
    stream = Stream()
    for event in (NoteAdded("baseline: it fails"), SearchStarted(65, None)):
        Json(stream)(event)
    assert stream.getvalue() == ""
    for_people = {NoteAdded, ActivityStarted, PhaseEntered, QueryStarted, SearchStarted}
    assert for_people == set(get_args(Event)) - EVENT_NAMES.keys()


def test_other_failure_event_has_the_fields_of_the_summary() -> None:
    told = {field.name for field in fields(OtherFailureFound)}
    assert told == {field.name for field in fields(OtherFailure)}


def test_search_emits_an_event_for_each_check() -> None:
    stream = Stream()
    candidate = whole(chain("x", "relu", "tanh", "cos", "sin", "exp"))
    oracle = FakeOracle(calls("aten.cos.default"))
    Reducer(candidate, Asker(oracle), choose(None), listener=Json(stream)).run()
    lines = objects(stream.getvalue())
    checks = [line for line in lines if line["event"] == "check"]
    steps = [line for line in lines if line["event"] == "step"]
    assert [line["check"] for line in checks] == [*range(1, len(checks) + 1)]
    assert {line["outcome"] for line in checks} == {"reproduced", "passed"}
    assert steps[0]["before"] == 5
    assert steps[-1]["after"] == 1
    for step in steps:
        (check,) = (line for line in checks if line["check"] == step["check"])
        assert check["outcome"] == "reproduced"
        assert check["strategy"] == step["strategy"]
        assert check["asked"] == step["after"]


def test_error_is_the_last_event_and_the_only_output_on_stdout(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["nowhere.pt2", "--json", "-v"]) == 2
    shown = capsys.readouterr()
    (end,) = objects(shown.out)
    assert (end["event"], end["status"], end["exit_code"]) == ("end", "error", 2)
    assert end["error"].startswith("nowhere.pt2: no such file")
    assert "shrinkfx: nowhere.pt2: no such file" in shown.err


def test_internal_error_is_emitted_as_an_event_before_the_exception(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(api, "reduce", fails)
    with pytest.raises(ZeroDivisionError):
        main(["model.pt2", "--json"])
    (end,) = objects(capsys.readouterr().out)
    assert (end["status"], end["exit_code"]) == ("error", 1)
    assert "a bug" in end["error"]


def test_run_continues_after_the_reader_closed_the_pipe(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    with os.fdopen(writer, "w") as stream:
        told = Json(stream)
        told(EVENTS[0][0])
        os.close(reader)
        for event, _ in EVENTS[1:]:
            told(event)
