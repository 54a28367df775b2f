"""The cause of a result, its issue and its report."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from support.doubles import FakeServer
from support.pages import explained, searched, transformer

from shrinkfx.check.oracle import CheckClient, Limits
from shrinkfx.errors import UsageError, WorkerError
from shrinkfx.events import Event, NoteAdded, ignore_event
from shrinkfx.explain.cause import KnownFacts
from shrinkfx.failure.readers.memory import MemoryReport
from shrinkfx.failure.signature import MEMORY_FAULT, Kind, Signature, Stage
from shrinkfx.findings.record import Explanation
from shrinkfx.journal.journal import Journal
from shrinkfx.options.options import Options
from shrinkfx.program.candidate import Candidate
from shrinkfx.protocol.answers import Collected, Ending, Raised
from shrinkfx.report.record import (
    Failure,
    Memory,
    Programs,
    ProgramSize,
    ReproFiles,
    RunRecord,
    VerifiedRepro,
)
from shrinkfx.run import explaining
from shrinkfx.run import explaining as issue
from shrinkfx.run import explaining as reporting
from shrinkfx.run.context import RunContext, Subject
from shrinkfx.run.explaining import (
    add_versions,
    collect_run,
    collect_versions,
    explain_result,
    report_again,
    report_explained,
    report_folder,
    report_run,
    rewrite_issue,
    write_issue,
)
from shrinkfx.run.folder import (
    describe_request,
    load_finished_options,
    open_run_folder,
    record_run_end,
)
from shrinkfx.run.verification import Result, VerifiedResult
from shrinkfx.system.folders import JOURNAL, lock_folder
from shrinkfx.testing import chain, whole

# What is known of a cause is told, and takes nothing away from the result.


CRASH = Signature(Kind.CRASH, Stage.RUN, MEMORY_FAULT)
SIZE = ProgramSize(2)
OVERRUN = MemoryReport("heap-buffer-overflow", "read", 4, "cpp_fused_exp_0", 12, "")
REPRO = "# crash in AOTInductor\n#\n# Seen on: torch\n\nimport torch\n"


def kept_of(candidate: Candidate, target: Signature = CRASH) -> VerifiedResult:
    client = CheckClient(FakeServer(), Limits(10.0, 1 << 30))
    context = RunContext(Options(Path("model.pt2")), Path("out"), ignore_event)
    subject = Subject(context, candidate, SIZE, client, target, 1.0)
    verified = VerifiedRepro(ReproFiles((Path("repro.py"),), "source"), 3, 3)
    programs = Programs(SIZE, SIZE, cut=2)
    record = RunRecord(Failure(target, target), programs, verified=verified)
    return VerifiedResult(Result(subject, candidate, "program", target), record)


@pytest.fixture(name="out")
def _out(tmp_path: Path) -> Path:
    (tmp_path / "repro.py").write_text(REPRO)
    return tmp_path


def context_of(out: Path, *, no_explain: bool = False) -> RunContext:
    options = Options(Path("model.pt2"), no_explain=no_explain)
    return RunContext(options, out, ignore_event)


def test_cause_is_written_to_the_repro_and_in_full_to_explain_json(out: Path) -> None:
    kept = kept_of(whole(chain("x", "relu")))
    explained = explain_result(context_of(out), kept)
    told = json.loads((out / "explain.json").read_text())
    assert Explanation.from_json(told) == explained.explanation
    assert told["guilty"] == told["operators"]
    repro = (out / "repro.py").read_text()
    assert "# Cause:   " in repro
    assert ast.dump(ast.parse(repro)) == ast.dump(ast.parse(REPRO))


def test_no_explain_option_skips_the_explanation(out: Path) -> None:
    kept = kept_of(whole(chain("x", "relu")))
    explained = explain_result(context_of(out, no_explain=True), kept)
    assert explained.lines == ()
    assert not (out / "explain.json").exists()
    assert (out / "repro.py").read_text() == REPRO


@pytest.mark.parametrize(
    "error", [KeyboardInterrupt(), WorkerError("it died"), ZeroDivisionError("a bug")]
)
def test_error_in_the_cause_analysis_keeps_the_result(
    out: Path, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    def break_down(*_: object) -> Explanation:
        raise error

    monkeypatch.setattr(explaining, "explain", break_down)
    kept = kept_of(whole(chain("x", "relu")))
    told: list[Event] = []
    options = Options(Path("model.pt2"))
    context = RunContext(options, out, told.append)
    explained = explain_result(context, kept)
    assert explained.lines == ()
    expected = f"the cause analysis failed: {error}"
    if isinstance(error, KeyboardInterrupt):
        expected = "interrupted before the cause was known"
    assert expected in [event.text for event in told if isinstance(event, NoteAdded)]
    assert (out / "repro.py").read_text() == REPRO
    assert not (out / "explain.json").exists()


def test_result_is_stored_in_the_journal_for_a_later_explanation(out: Path) -> None:
    candidate = whole(chain("x", "relu", "exp"))
    kept = kept_of(candidate)
    kept = replace(kept, record=replace(kept.record, memory=Memory(report=OVERRUN)))
    with closing(Journal(out / JOURNAL)) as journal:
        context = RunContext(Options(Path("model.pt2")), out, ignore_event, journal)
        explain_result(context, kept)
        known = journal.fact("result")
    assert known is not None
    again = explaining._from_json(kept.result.program, known)
    assert again.candidate == candidate
    assert again == kept.result
    shown = explaining._shown_from_json(kept.result.program, known)
    assert shown == KnownFacts(fails=True, compared=True, memory=OVERRUN)


def options_at(folder: Path) -> Options:
    model = folder / "model.pt2"
    model.write_bytes(b"program")
    return Options(model, out=folder / "out")


def test_finished_run_can_be_explained(tmp_path: Path) -> None:
    options = options_at(tmp_path)
    out = tmp_path / "out"
    out.mkdir()
    with open_run_folder(options, out, ignore_event) as context:
        context.journal.note("baseline", {})
    with pytest.raises(UsageError, match=f"--resume {out}"):
        load_finished_options(out)
    with open_run_folder(options, out, ignore_event) as context:
        record_run_end(context, "reduced", "2 -> 1", 0)
    with pytest.raises(
        UsageError,
        match=(
            r"the run has no recorded result \(it is a "
            r"sweep, or of an earlier version\)"
        ),
    ):
        load_finished_options(out)
    made = {"inputs": str(out / "failing-1.pt"), "environment": {"A": "1"}}
    with open_run_folder(options, out, ignore_event) as context:
        context.journal.note("result", made)
    asked = replace(options, inputs=out / "failing-1.pt", environment={"A": "1"})
    assert load_finished_options(out) == replace(asked, cwd=Path.cwd())
    options.model.write_bytes(b"another")
    with pytest.raises(UsageError, match=r"--explain .* one of these files changed"):
        load_finished_options(out)


def test_observations_of_a_result_are_restored_for_a_later_explanation(
    tmp_path: Path,
) -> None:
    """One that was not seen to fail in each run blames nobody then, either."""
    kept = kept_of(whole(chain("x", "relu")))
    unverified = replace(kept, record=replace(kept.record, verified=VerifiedRepro()))
    for each, fails in ((kept, True), (unverified, False)):
        out = tmp_path / str(fails)
        out.mkdir()
        (out / "repro.py").write_text(REPRO)
        with closing(Journal(out / JOURNAL)) as journal:
            context = RunContext(Options(Path("model.pt2")), out, ignore_event, journal)
            explain_result(context, each)
            known = journal.fact("result")
        assert explaining._shown_from_json(kept.result.program, known).fails is fails
        # An earlier version has recorded less.
        del known["fails"], known["compared"], known["memory"]
        assert explaining._shown_from_json(kept.result.program, known) == KnownFacts()


HANGS = Signature(Kind.HANG, Stage.COMPILE, "", "did not end within the time limit")
DUMP = """\
Current thread 0x00007f17f1459b80 (most recent call first):
  File "/env/lib/python3.11/site-packages/torch/fx/node.py", line 887 in __setattr__
  File "/home/me/passes.py", line 15 in settle
  File "/tmp/abc/repro.py", line 20 in <module>
"""


@pytest.mark.parametrize("anonymous", [False, True])
def test_hang_in_user_code_is_the_first_cause_also_in_a_later_explanation(
    out: Path, *, anonymous: bool
) -> None:
    kept = kept_of(whole(chain("x", "relu")), HANGS)
    kept = replace(kept, record=with_log(kept.record, DUMP))
    with closing(Journal(out / JOURNAL)) as journal:
        options = Options(Path("model.pt2"), anonymous=anonymous)
        context = RunContext(options, out, ignore_event, journal)
        explained = explain_result(context, kept)
        known = journal.fact("result")
    where = "code of a preload module" if anonymous else "passes.py:settle"
    said = f"The compiler hangs in {where}, which is not part of PyTorch."
    assert explained.cause[0] == said
    header = " ".join((out / "repro.py").read_text().replace("\n#", "").split())
    assert said in header
    assert explaining._shown_from_json(kept.result.program, known).inside == said
    del known["inside"]  # as an earlier version has noted it
    assert explaining._shown_from_json(kept.result.program, known).inside == ""


def with_log(record: RunRecord, log: str) -> RunRecord:
    return replace(record, verified=replace(record.verified, log=log))


# The issue of a run: written at its end, and anew when its cause is asked for.


SEEN = Signature(Kind.EXCEPTION, Stage.RUN, text="RuntimeError: no")
SIZE_ISSUE = ProgramSize(1)
RECORD = RunRecord(
    Failure(SEEN, SEEN),
    Programs(SIZE_ISSUE, SIZE_ISSUE, 1, ("aten.relu.default",)),
    verified=VerifiedRepro(ReproFiles((Path("repro.py"),), "source"), 3, 3),
)
SCRIPT = "# Seen on: torch\n\nimport torch\n"
COLLECTED = Ending(
    "exit", answer=Collected("PyTorch version: 9\non gpu-17", ("gpu-17",))
)


@pytest.fixture(name="out_issue")
def _out_issue(tmp_path: Path) -> Path:
    (tmp_path / "repro.py").write_text(SCRIPT)
    return tmp_path


def client_of(server: FakeServer) -> CheckClient:
    return CheckClient(server, Limits(10.0, 1 << 30))


def notes(told: list[Event]) -> str:
    return "\n".join(event.text for event in told if isinstance(event, NoteAdded))


def test_issue_is_written_at_the_end_and_rewritten_with_a_new_cause(
    out_issue: Path,
) -> None:
    server, told = FakeServer(COLLECTED), list[Event]()
    with closing(Journal(out_issue / JOURNAL)) as journal:
        context = RunContext(Options(Path("m.pt2")), out_issue, told.append, journal)
        versions = collect_versions(context, client_of(server), SEEN)
        path = write_issue(context, RECORD, Explanation(), versions)
        assert path == out_issue / "ISSUE.md"
        first = path.read_text()
    assert "PyTorch version: 9\non HOST" in first
    assert "- The root cause." in first
    with closing(Journal(out_issue / JOURNAL)) as journal:
        options = Options(Path("m.pt2"), title="relu raises")
        context = RunContext(options, out_issue, told.append, journal)
        found = Explanation(cause=("aten.relu.default is lost.",))
        assert rewrite_issue(context, client_of(server), found) == path
    assert path.read_text().startswith("# relu raises\n")
    assert "`aten.relu` is lost." in path.read_text()
    assert "PyTorch version: 9" in path.read_text()
    assert len(server.asked) == 1  # versions are collected once per run
    assert notes(told) == ""


@pytest.mark.parametrize(
    "ending", [Ending("timeout"), Ending("exit", answer=Raised("OSError", "no"))]
)
def test_versions_that_cannot_be_collected_are_reported(
    out_issue: Path, ending: Ending
) -> None:
    told: list[Event] = []
    context = RunContext(Options(Path("m.pt2")), out_issue, told.append)
    versions = collect_versions(context, client_of(FakeServer(ending)), SEEN)
    assert versions == ""
    assert "torch.utils.collect_env" in notes(told)
    record = replace(RECORD, versions={"torch": "2.13.0", "Python": "3.11"})
    path = write_issue(context, record, Explanation(), versions)
    assert path is not None
    assert "```\ntorch 2.13.0\nPython 3.11\n```" in path.read_text()


@pytest.mark.parametrize("raised", [KeyboardInterrupt(), RecursionError("deep")])
def test_exception_while_writing_the_issue_keeps_the_result(
    out_issue: Path, raised: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> str:
        raise raised

    monkeypatch.setattr(issue, "issue_text", fail)
    told: list[Event] = []
    with closing(Journal(out_issue / JOURNAL)) as journal:
        context = RunContext(Options(Path("m.pt2")), out_issue, told.append, journal)
        assert write_issue(context, RECORD, Explanation(), "") is None
    assert "ISSUE.md could not be written" in notes(told)
    assert (out_issue / "repro.py").read_text() == SCRIPT
    assert sorted(
        path.name for path in out_issue.iterdir() if path.suffix != ".sqlite"
    ) == ["repro.py"]


@pytest.mark.parametrize("anonymous", [True, False])
def test_issue_uses_the_input_names_of_the_repro(
    out_issue: Path, anonymous: bool
) -> None:
    options = Options(Path("m.pt2"), anonymous=anonymous)
    programs = replace(RECORD.programs, renamed={"token_ids": "x"})
    found = Explanation(cause=("The size of input token_ids is lost.",))
    with closing(Journal(out_issue / JOURNAL)) as journal:
        context = RunContext(options, out_issue, lambda _: None, journal)
        path = write_issue(context, replace(RECORD, programs=programs), found, "9")
        assert path is not None
        written = path.read_text()
        path.unlink()
        client = client_of(FakeServer(COLLECTED))
        assert rewrite_issue(context, client, found) == path
    for text in (written, path.read_text()):
        assert "The size of input x is lost." in text
        assert "token_ids" not in text


IN_ASCII = """
from test_explaining import *

out = Path(sys.argv[1])
script = "# größer\\nimport torch\\n"
(out / "repro.py").write_text(script, encoding="utf-8")
context = RunContext(Options(Path("m.pt2"), title="größer → 2"), out, lambda _: None)
found = Explanation(cause=("Das ist größer.",))
path = write_issue(context, RECORD, found, "Linux größer")
text = path.read_text(encoding="utf-8")
assert text.startswith("# größer → 2"), ascii(text)
for words in ("Das ist größer.", "Linux größer"):
    assert words in text, ascii(text)
"""


def test_issue_is_utf_8_in_any_locale(out_issue: Path) -> None:
    """In a process whose locale has no such letters."""
    here = Path(__file__).parent
    path = os.pathsep.join(map(str, (here.parents[1], here.parent, here)))
    ascii_only = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    script = out_issue / "in_ascii.py"
    script.write_text(IN_ASCII, encoding="utf-8")
    subprocess.run(
        [sys.executable, str(script), str(out_issue)],
        env={**os.environ, **ascii_only, "PYTHONPATH": path},
        check=True,
    )


def test_failure_judged_by_a_command_has_no_issue(out_issue: Path) -> None:
    judged = Signature(Kind.CHECK, Stage.RUN, "")
    record = replace(RECORD, failure=Failure(judged, judged))
    context = RunContext(Options(Path("m.pt2")), out_issue, lambda _: None)
    assert write_issue(context, record, Explanation(), "") is None
    assert not (out_issue / "ISSUE.md").exists()


def finish_run(out: Path) -> None:
    """Write the folder of a finished run with an issue."""
    options = Options(out / "m.pt2", title="relu raises")
    with closing(Journal(out / JOURNAL)) as journal:
        journal.note("run", describe_request(options))
        context = RunContext(options, out, lambda _: None, journal)
        record = replace(RECORD, versions={"torch": "2.13.0"})
        versions = collect_versions(context, client_of(FakeServer(COLLECTED)), SEEN)
        assert write_issue(context, record, Explanation(), versions)


def test_issue_lists_the_verdicts_by_version(out_issue: Path) -> None:
    finish_run(out_issue)
    told: list[Event] = []
    assert "PyTorch versions other than 2.13.0" in (out_issue / "ISSUE.md").read_text()
    repro = out_issue / "repro.py"
    add_versions(repro, {"2.14.1": True, "2.13.0": False, "2.9.1": None}, told.append)
    add_versions(repro, {"2.15.0": True, "2.13.0": False}, told.append)
    said = "\nFails on torch 2.14.1 and 2.15.0; passes on 2.13.0.\n"
    written = (out_issue / "ISSUE.md").read_text()
    assert said in written
    assert "other versions of PyTorch" not in written
    assert "- Other devices." in written
    assert written.startswith("# relu raises\n")
    assert "PyTorch version: 9" in written
    with closing(Journal(out_issue / JOURNAL)) as journal:  # as --explain does
        context = RunContext(Options(Path("m.pt2")), out_issue, told.append, journal)
        found = Explanation(cause=("aten.relu.default is lost.",))
        rewrite_issue(context, client_of(FakeServer(COLLECTED)), found)
    assert said in (out_issue / "ISSUE.md").read_text()
    assert notes(told) == ""


@pytest.mark.parametrize(
    ("name", "verdicts"),
    [
        ("repro.py", {"2.13.0": True}),  # known before
        ("repro.py", {"2.13.0": True, "2.14.0": None}),
        ("other.py", {"2.13.0": True, "2.14.0": True}),
    ],
)
def test_issue_is_unchanged_without_a_verdict_of_another_version(
    out_issue: Path, name: str, verdicts: dict[str, bool | None]
) -> None:
    finish_run(out_issue)
    before = (out_issue / "ISSUE.md").read_text()
    add_versions(out_issue / name, verdicts, lambda _: None)
    assert (out_issue / "ISSUE.md").read_text() == before


def test_report_writes_the_issue_again_and_keeps_an_edited_one(out_issue: Path) -> None:
    finish_run(out_issue)
    issue, new = out_issue / "ISSUE.md", out_issue / "ISSUE.new.md"
    told: list[Event] = []
    first = issue.read_text()
    (out_issue / "repro.py").write_text("changed = 1\n")
    report_again(out_issue, told.append)
    second = issue.read_text()
    assert "changed = 1" in second != first
    assert (new.exists(), told) == (False, [])
    issue.write_text("# My title\n")
    report_again(out_issue, told.append)
    assert (issue.read_text(), new.read_text()) == ("# My title\n", second)
    said = "ISSUE.md may have your edits: the new text is in ISSUE.new.md"
    assert notes(told) == said
    issue.unlink()
    report_again(out_issue, told.append)
    assert not issue.exists()


def test_failure_to_add_versions_is_a_note(out_issue: Path) -> None:
    finish_run(out_issue)
    told: list[Event] = []
    with ThreadPoolExecutor(1) as others, lock_folder(out_issue):
        verdicts = {"2.13.0": True, "2.14.0": True}
        others.submit(
            add_versions, out_issue / "repro.py", verdicts, told.append
        ).result()
    assert "ISSUE.md could not be written: another shrinkfx is running" in notes(told)


# The page of a run is written at its end, or anew, and takes nothing away from it.


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
