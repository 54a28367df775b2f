"""Rows of the benchmark: put together from runs of different days, and shown."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import peers
import pytest
from peer_rows import Row, ratios, read, table, write
from tools import Case, Result
from torch_side import Outcome

METERS = {"baseline": 15.0, "search": 10.0, "verify": 12.0, "overhead": 12.5}
OURS = Result(
    "", 5, 10.0, 50.0, 60.0, 2, 0, refails=True, parts=METERS, measured="a day"
)
THEIRS = Result("", 9, 20.0, 20.0, 30.0, 3, 0, refails=True, outcome=Outcome.REDUCED)


def row(theirs: Result) -> Row:
    floors = {"start": 5.0, "original": 4.0, "smaller": 6.0, "repro": 10.0}
    return Row("small", 40, 0, OURS, theirs, 25.0, floors, "compile-error")


def test_rows_are_unchanged_after_write_and_read(tmp_path: Path) -> None:
    write([row(THEIRS)], tmp_path)
    (again,) = read([tmp_path / "peers.json"])
    assert again.shrinkfx.measured == "a day"
    assert again.pytorch.operators == 3


def test_rows_of_an_older_file_name_the_file(tmp_path: Path) -> None:
    file = tmp_path / "2026-11-21-peers.json"
    write([row(THEIRS)], tmp_path)
    about = json.loads((tmp_path / "peers.json").read_text())
    for tool in ("shrinkfx", "pytorch"):
        del about["rows"][0][tool]["measured"]
    file.write_text(json.dumps(about))
    (old,) = read([file])
    assert old.shrinkfx.measured == "2026-11-21-peers, revision not recorded"


def test_table_has_each_meter_and_the_outcome_of_the_peer() -> None:
    died = Result("died of SIGSEGV", 1, outcome=Outcome.DIED)
    lines = table([row(THEIRS), row(died)]).splitlines()
    ours = "| small | 40 | 2 | 5 | 15 | 10 | 12 |  | 12 | 50 | 25 |"
    assert lines[2] == f"{ours} reduced | 3 | 9 | 20 | 2.50 |"
    assert lines[3] == f"{ours} died of SIGSEGV |  | 1 | 0 |  |"
    assert len({line.count("|") for line in lines}) == 1


def test_only_cases_that_the_peer_reduces_are_compared() -> None:
    slipped = Result("", 9, 1.0, 1.0, 1.0, 1, 0, refails=True, outcome=Outcome.SLIPPED)
    slower = replace(THEIRS, search=80.0, total=80.0)
    said = ratios([row(THEIRS), row(slower), row(slipped)])
    assert "3 cases, 2 that both reduce" in said
    assert "search: 0.25 of the peer's, at most 0.50" in said
    assert "total: 1.25 of the peer's, at most 2.50" in said


def test_ratios_compare_rows_with_the_floor() -> None:
    old = replace(row(THEIRS), floor=4.0, floors={}, kind="")
    said = ratios([row(THEIRS), old])
    assert "search: 1.7 times its part of the floor, median" in said
    assert "total: 2.0 times the floor, median" in said
    assert "all: 50 CPU-seconds in the median, at most 50 (2)" in said
    assert "compile errors: 50 CPU-seconds in the median, at most 50 (1)" in said
    assert "its meters are off by 1.0% of the total at most" in said


def test_earlier_measurements_are_reused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def ours(case: Case, folder: Path, limit: float) -> Result:
        asked.append("shrinkfx")
        (folder / "out").mkdir(parents=True)
        sizes = {name: {"before": 7, "after": 1} for name in peers.SIZES}
        (folder / "out" / "summary.json").write_text(json.dumps(sizes))
        return OURS

    def theirs(case: Case, folder: Path, limit: float) -> Result:
        asked.append("pytorch")
        folder.mkdir()  # nothing is left of a run that was cut off
        if asked.count("pytorch") == 1:
            raise KeyboardInterrupt
        return THEIRS

    monkeypatch.setattr(peers, "with_shrinkfx", ours)
    monkeypatch.setattr(peers, "with_pytorch", theirs)
    monkeypatch.setattr(peers, "floor", lambda *_: {"start": 2.0, "repro": 3.0})
    case = Case("small", tmp_path / "m.pt2", "nan")
    with pytest.raises(KeyboardInterrupt):
        peers.measure(case, tmp_path / "small", 9.0)
    for _ in range(2):
        found = peers.measure(case, tmp_path / "small", 9.0)
        assert (found.operators, found.floor, found.kind) == (7, 5.0, "nan")
        assert found.shrinkfx.total == OURS.total
    assert asked == ["shrinkfx", "pytorch", "pytorch"]
