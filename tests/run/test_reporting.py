"""The page of a run is written at its end, or anew, and takes nothing away from it."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from support.pages import explained, searched, transformer

from shrinkfx.cli.main import main
from shrinkfx.errors import UsageError
from shrinkfx.events import Event, NoteAdded
from shrinkfx.failure.signature import Kind, Signature, Stage
from shrinkfx.failure.verdict import Observation, Outcome, Verdict
from shrinkfx.journal.journal import Journal
from shrinkfx.options.options import Options
from shrinkfx.program.candidate import Candidate
from shrinkfx.program.skeleton import Skeleton
from shrinkfx.run import explaining as reporting
from shrinkfx.run.context import RunContext
from shrinkfx.run.explaining import (
    collect_run,
    report_explained,
    report_folder,
    report_run,
)
from shrinkfx.testing import chain, operator

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


def test_report_title_is_the_program_name_of_the_user(tmp_path: Path) -> None:
    out = searched(tmp_path / "out", transformer(1), "program-1.pt2")
    with closing(Journal(out / "journal.sqlite")) as journal:
        run = journal.fact("run")
        journal.note("run", {"options": {**run["options"], "name": "serve.py"}})
    text = report_folder(out).read_text()
    assert "<title>serve.py: " in text
    assert "serve.py was reduced from" in text


def test_target_failure_at_passing_sizes_is_not_among_other_failures(
    tmp_path: Path,
) -> None:
    out = searched(tmp_path / "out", transformer(1))
    target = Signature(Kind.CRASH, Stage.RUN, text="died")
    passing = replace(target, stage=Stage.PASSING)
    other = Signature(Kind.NAN, Stage.COMPARE)
    seen = [passing, other, replace(other, stage=Stage.PASSING), target]
    with closing(Journal(out / "journal.sqlite")) as journal:
        journal.db.write("DELETE FROM checks", ())
        journal.note("baseline", {"target": asdict(target)})
        whole = Candidate.from_skeleton(chain("x", "relu"))
        for signature in seen:
            number = journal.record_query("drop_nodes", "program", whole)
            verdict = Verdict(Outcome.DIFFERENT, Observation(signature))
            journal.record_verdict(number, verdict)
        run = collect_run(out, journal)
    assert [check.is_by_catch for check in run.checks] == [False, True, True, False]
    assert [check.came for check in run.checks[:2]] == ["no step", "different"]
    text = report_folder(out).read_text()
    assert ", 2 other failures." in text
    assert "fails in the same way where it must pass</span>" in text


def test_operator_counts_agree_everywhere_in_the_report(tmp_path: Path) -> None:
    plain = transformer(2)
    some = [plain.node(name) for name in plain.graph]
    nodes = [replace(n, operators=3) if n.name == "linear" else n for n in some]
    nodes.append(operator("linear", target="aten.check.default", value=None))
    nodes[-1] = replace(nodes[-1], name="check")  # it has no effect: nobody counts it
    program = Skeleton(nodes, plain.outputs)
    out = searched(tmp_path / "out", program)
    of = len(plain.operators) + 2
    text = report_folder(out).read_text()
    for told in (
        f"was reduced from {of} operators to 2",
        f"<dd>{of} \u2192 2<",
        f"<b>Before</b> {of} operators",
        f"from {of} operators down",
    ):
        assert told in text, told
    assert "in the form that is reduced" not in text


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


def test_report_refuses_a_folder_without_a_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--report", str(tmp_path / "none")]) == 2
    assert "no such folder" in capsys.readouterr().err
    Journal(tmp_path / "journal.sqlite").close()
    with pytest.raises(UsageError, match=": the run was killed before it started"):
        report_folder(tmp_path)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["model.pt2"], "--report DIR reads the folder of a run: omit MODEL.pt2"),
        (["--until", "nan"], "omit --until"),
    ],
)
def test_report_option_accepts_no_other_options(
    tmp_path: Path, more: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--report", str(tmp_path), *more]) == 2
    assert said in capsys.readouterr().err


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


def test_folder_in_the_report_is_relative_to_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = searched(tmp_path / "my runs" / "model-1", transformer(1))
    monkeypatch.chdir(tmp_path)
    with closing(Journal(out / "journal.sqlite")) as journal:
        assert collect_run(out, journal).folder == "'my runs/model-1'"
        monkeypatch.chdir("/")
        assert collect_run(out, journal).folder == f"'{out.relative_to('/')}'"
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path / "elsewhere")  # no folder of the machine is shown
        run = collect_run(out, journal)
    assert run.folder == "model-1"
    assert run.no_explanation.endswith("shrinkfx --explain model-1 runs it.")
