"""What a folder with runs tells of them, and that looking changes nothing there."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from shrinkfx.errors import UsageError
from shrinkfx.events import ignore_event
from shrinkfx.failure.verdict import Observation, Outcome, Verdict
from shrinkfx.options.options import Options, Sweeping
from shrinkfx.run.folder import JOURNAL, Run, list_runs, open_run_folder, record_run_end
from shrinkfx.system.folder_lock import LOCK, is_folder_locked, lock_folder
from shrinkfx.testing import chain, whole

CANDIDATE = whole(chain("x", "relu", "tanh", "cos"))


@pytest.fixture(name="options")
def _options(tmp_path: Path) -> Options:
    model = tmp_path / "model.pt2"
    model.write_bytes(b"program")
    return Options(model)


@pytest.fixture(name="runs")
def _runs(tmp_path: Path) -> Path:
    folder = tmp_path / "shrinkfx-out"
    folder.mkdir()
    return folder


def begin(
    options: Options, out: Path, *, ended: tuple[str, str, int] | None = None
) -> None:
    """Have a run see a failure of ten operators, and find three that fail."""
    out.mkdir(exist_ok=True)
    with open_run_folder(options, out, ignore_event) as context:
        known = {"before": {"operators": 10}, "target": {"kind": "assert"}}
        context.journal.note("baseline", known)
        for outcome in (Outcome.REPRODUCED, Outcome.PASSED):
            number = context.journal.record_query("drop_nodes", "program", CANDIDATE)
            context.journal.record_verdict(number, Verdict(outcome, Observation()))
        if ended:
            record_run_end(context, *ended)


def only(runs: Path) -> Run:
    (run,) = list_runs(runs)
    return run


def test_running_run_is_listed_with_the_state_of_its_journal(
    options: Options, runs: Path
) -> None:
    out = runs / "model-1"
    begin(options, out)
    with lock_folder(out):
        run = only(runs)
    assert (run.status, run.program, run.kind) == ("at work", "model.pt2", "assert")
    assert (run.operators, run.checks, run.verified) == ((10, 3), 2, None)
    assert run.at > 0


@pytest.mark.parametrize(
    ("ended", "status", "goes_on"),
    [
        (None, "broken off", True),
        (("stopped", "limit of 5 checks reached", 4), "stopped", True),
        (("reduced", "reduced: 10 -> 3 operators", 0), "reduced", False),
        (("unverified", "unverified: 10 -> 3 operators", 5), "unverified", False),
    ],
)
def test_ended_run_is_listed_with_its_ending(
    options: Options,
    runs: Path,
    ended: tuple[str, str, int] | None,
    status: str,
    *,
    goes_on: bool,
) -> None:
    begin(options, runs / "model-1", ended=ended)
    run = only(runs)
    assert (run.status, run.may_go_on) == (status, goes_on)


@pytest.mark.parametrize(
    ("code", "status"), [(0, "passes"), (3, "missed"), (6, "found")]
)
def test_sweep_is_listed_with_the_status_of_its_findings(
    options: Options, runs: Path, code: int, status: str
) -> None:
    out = runs / "model-1"
    out.mkdir()
    with open_run_folder(
        replace(options, sweeping=Sweeping()), out, ignore_event
    ) as context:
        record_run_end(context, status, "2 findings in sweep.json", code)
    assert (only(runs).status, only(runs).kind) == (status, "sweep")


_WORKS = """
import os, signal, sys
from pathlib import Path
from shrinkfx.events import ignore_event
from shrinkfx.options.options import Options
from shrinkfx.run.folder import open_run_folder
options, out = Options(Path(sys.argv[1])), Path(sys.argv[2])
with open_run_folder(options, out, ignore_event) as context:
    context.journal.note("unchanged", {"base": {"target": {"kind": "nan"}}})
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_killed_run_is_listed_as_killed(options: Options, runs: Path) -> None:
    out = runs / "model-1"
    command = [sys.executable, "-c", _WORKS, str(options.model), str(out)]
    done = subprocess.run(command, check=False, timeout=120)
    assert done.returncode == -signal.SIGKILL
    assert (out / LOCK).exists()
    assert not is_folder_locked(out)
    assert (only(runs).status, only(runs).kind) == ("killed", "nan")


def test_summary_overrides_the_journal_for_a_finished_run(
    options: Options, runs: Path
) -> None:
    ended = "reduced", "reduced: 10 -> 2 operators", 0
    begin(options, runs / "model-1", ended=ended)
    summary = {
        "kind": "nan",
        "operators": {"before": 12, "after": 2},
        "verified": {"runs": 3, "failed": 3},
        "checks": {"total": 9},
        "seconds": 61.5,
    }
    (runs / "model-1" / "summary.json").write_text(json.dumps(summary))
    run = only(runs)
    assert (run.kind, run.operators, run.verified) == ("nan", (12, 2), (3, 3))
    assert (run.checks, run.seconds) == (9, 61.5)
    (runs / "model-1" / "summary.json").write_text("{")
    assert only(runs).operators == (10, 3)


def no_database(path: Path) -> None:
    path.write_bytes(b"no database" * 1000)


def empty(path: Path) -> None:
    path.write_bytes(b"")


def no_json(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("UPDATE facts SET value='{'")
        db.commit()


def no_target(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("UPDATE facts SET value='{}' WHERE name='run'")
        db.commit()


def other_tables(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA user_version=77")


@pytest.mark.parametrize(
    ("damage", "status", "problem"),
    [
        (no_database, "damaged", "file is not a database"),
        (empty, "damaged", "the journal is empty"),
        (no_json, "damaged", "content is invalid"),
        (no_target, "damaged", "content is invalid"),
        (other_tables, "foreign", "of version 77"),
    ],
)
def test_unreadable_journal_is_listed_as_a_problem_with_the_other_runs(
    options: Options,
    runs: Path,
    damage: Callable[[Path], None],
    status: str,
    problem: str,
) -> None:
    for name in ("model-1", "model-2"):
        begin(options, runs / name)
    damage(runs / "model-2" / JOURNAL)
    found = {run.folder.name: run for run in list_runs(runs)}
    assert found["model-1"].status == "broken off"
    assert found["model-2"].status == status
    assert problem in found["model-2"].problem
    assert not found["model-2"].may_go_on


def test_listing_changes_no_file(options: Options, runs: Path) -> None:
    begin(options, runs / "model-1")
    before = {p: p.stat().st_mtime_ns for p in runs.rglob("*")}
    assert list_runs(runs)
    assert {p: p.stat().st_mtime_ns for p in runs.rglob("*")} == before


def test_missing_folder_is_reported_with_the_usual_place_of_runs(
    tmp_path: Path,
) -> None:
    (tmp_path / "file").touch()
    for name, said in {"none": "No such file", "file": "Not a directory"}.items():
        with pytest.raises(UsageError, match=f"(?s){said}.*stored in shrinkfx-out"):
            list_runs(tmp_path / name)
