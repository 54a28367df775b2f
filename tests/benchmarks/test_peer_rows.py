"""Rows of the benchmark: put together from runs of different days, and shown."""

from __future__ import annotations

import json
from pathlib import Path

from peer_rows import Row, ratios, read, table, write
from tools import Result
from torch_side import Outcome

OURS = Result("", 5, 10.0, 50.0, 60.0, 2, 0, refails=True, measured="a day")
THEIRS = Result("", 9, 20.0, 20.0, 30.0, 3, 0, refails=True, outcome=Outcome.REDUCED)


def row(theirs: Result) -> Row:
    return Row("small", 40, 0, OURS, theirs, 4.0)


def test_rows_are_read_as_they_were_written(tmp_path: Path) -> None:
    write([row(THEIRS)], tmp_path)
    (again,) = read([tmp_path / "peers.json"])
    assert again.shrinkfx.measured == "a day"
    assert again.pytorch.operators == 3


def test_rows_of_an_older_file_say_where_they_come_from(tmp_path: Path) -> None:
    file = tmp_path / "2026-11-21-peers.json"
    write([row(THEIRS)], tmp_path)
    about = json.loads((tmp_path / "peers.json").read_text())
    for tool in ("shrinkfx", "pytorch"):
        del about["rows"][0][tool]["measured"]
    file.write_text(json.dumps(about))
    (old,) = read([file])
    assert old.shrinkfx.measured == "2026-11-21-peers, revision not recorded"


def test_table_says_how_the_peer_ended() -> None:
    died = Result("died of SIGSEGV", 1, outcome=Outcome.DIED)
    lines = table([row(THEIRS), row(died)]).splitlines()
    assert lines[2] == "| small | 40 | 2 | 5 | 10 (50) | reduced | 3 | 9 | 20 |"
    assert lines[3] == "| small | 40 | 2 | 5 | 10 (50) | died of SIGSEGV |  | 1 | 0 |"


def test_only_what_the_peer_reduces_is_compared() -> None:
    slipped = Result("", 9, 1.0, 1.0, 1.0, 1, 0, refails=True, outcome=Outcome.SLIPPED)
    said = ratios([row(THEIRS), row(slipped)])
    assert "2 cases, 1 that both reduce" in said
    assert "search: 0.50 of the peer's, at most 0.50" in said
