"""The page of a run is written at its end, or anew, and takes nothing away from it."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from support.pages import explained, searched, transformer

from shrinkfx.errors import UsageError
from shrinkfx.events import Event, NoteAdded
from shrinkfx.journal.journal import Journal
from shrinkfx.options.options import Options
from shrinkfx.program.candidate import Candidate
from shrinkfx.run import explaining as reporting
from shrinkfx.run.context import RunContext
from shrinkfx.run.explaining import (
    collect_run,
    report_explained,
    report_folder,
    report_run,
)
from shrinkfx.testing import chain

ROOT = Path(__file__).resolve().parents[2]
TOOL = ROOT / "tests" / "support" / "torchless" / "command_line.py"


@pytest.mark.processes
def test_run_writes_the_report_at_its_end(tmp_path: Path) -> None:
    tool = [sys.executable, str(TOOL), str(tmp_path)]
    subprocess.run(tool, check=True)
    judge = f"{sys.executable} -S {tmp_path / 'judge.py'} {{}}"
    out = tmp_path / "out"
    options = ["--check", judge, "--out", str(out), "--json"]
    done = subprocess.run(
        [*tool, str(tmp_path / "model.pt2"), *options],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert f"repro:    {out / 'repro.py'}\nsee also: report.html\n" in done.stderr
    last = json.loads(done.stdout.splitlines()[-1])
    assert last["result"]["report"] == str(out / "report.html")
    written = (out / "report.html").read_text()
    with closing(Journal(out / "journal.sqlite")) as journal:
        asked = journal.list_queries()
        run = collect_run(out, journal)
    assert run.program is not None
    assert [check.number for check in run.checks] == [each.number for each in asked]
    assert all(f'data-row="{each.number}"' in written for each in asked)
    again = subprocess.run(
        [*tool, "--report", str(out)], capture_output=True, text=True, check=False
    )
    assert again.stdout == f"report:   {out / 'report.html'}\n"
    assert (out / "report.html").read_text() == written


def test_report_distinguishes_operator_counts_of_form_and_file(
    tmp_path: Path,
) -> None:
    out = searched(tmp_path / "out", transformer(1))
    told = json.loads((out / "summary.json").read_text())
    cut = told["operators"]["before"]
    told |= {"operators": {"before": 9, "after": 2}, "operators_cut": cut}
    (out / "summary.json").write_text(json.dumps(told))
    text = report_folder(out).read_text()
    said = f"{cut} operators (in the form that is reduced; 9 in the file)"
    assert f"<b>Before</b> {said}; the remaining operators are highlighted" in text
    assert f"from {said} down" in text
    assert "was reduced from 9 operators to 2" in text


def test_error_while_writing_the_report_is_noted_and_the_run_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> Path:
        raise RuntimeError("no such colour")

    monkeypatch.setattr(reporting, "write_page", fail)
    told: list[Event] = []
    context = RunContext(Options(Path("model.pt2")), tmp_path, told.append)
    assert report_run(context) is None
    why = NoteAdded("could not write report.html: no such colour")
    assert told == [why]
    (tmp_path / "out").mkdir()
    report_explained(searched(tmp_path / "out", transformer(1)), told.append)
    assert told == [why, why]


def test_malformed_summary_is_reported(tmp_path: Path) -> None:
    out = searched(tmp_path / "out", transformer(1))
    (out / "summary.json").write_text('{"operators": 3, "nodes": {}}')
    with pytest.raises(UsageError, match=r"cannot read the files of the run \("):
        report_folder(out)


def test_report_of_an_older_run_explains_the_missing_graph(tmp_path: Path) -> None:
    out = searched(tmp_path / "out", transformer(1))
    with closing(Journal(out / "journal.sqlite")) as journal:
        journal.db.write("DELETE FROM facts WHERE name='program'")
    text = report_folder(out).read_text()
    why = "An earlier version of shrinkfx made this run and did not record the program"
    assert why in text
    assert "Course of the search" in text


def test_report_of_a_sweep_has_a_table_of_sizes(tmp_path: Path) -> None:
    with closing(Journal(tmp_path / "journal.sqlite")) as journal:
        journal.note("run", {"options": {"model": "/home/me/model.pt2"}})
    finding = {
        "described": "s0=3, s1=33",
        "kind": "nan",
        "signature": {"text": "", "detail": "not finite"},
        "nearest_pass": {"s0": 3, "s1": 32},
    }
    counts = {"inside": {"run": 200, "fails": 4}}
    told = {"findings": [finding], "examples": counts}
    (tmp_path / "sweep.json").write_text(json.dumps(told))
    text = report_folder(tmp_path).read_text()
    assert all(
        s in text for s in ("s0=3, s1=33", "not finite", "s0=3, s1=32", "200 run")
    )


def test_report_contains_no_path_of_the_machine(tmp_path: Path) -> None:
    out = explained(searched(tmp_path / "out", transformer(1)))
    assert "/home/me" not in report_folder(out).read_text()


def test_history_counts_the_time_within_sessions_only(
    tmp_path: Path,
) -> None:
    with closing(Journal(tmp_path / "journal.sqlite")) as journal:
        whole = Candidate.from_skeleton(chain("x", "relu", "tanh"))
        for _ in range(2):
            journal.record_query("drop_nodes", "program", whole)
        write = journal.db.write
        write("DELETE FROM sessions")
        for began, seen in ((100, 110), (1000, 1020)):
            row = (began, seen)
            write("INSERT INTO sessions (began_at, seen_at) VALUES (?, ?)", row)
        for number, at in ((1, 104), (2, 1005)):
            write("UPDATE checks SET asked_at=? WHERE number=?", (at, number))
        found = journal.list_queries()
    assert [each.at_s for each in found] == [4.0, 15.0]
    assert [each.candidate["keep"] for each in found] == [["relu", "tanh"]] * 2
    assert {each.outcome for each in found} == {None}
