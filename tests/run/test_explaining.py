"""What is known of a cause is told, and takes nothing away from the result."""

from __future__ import annotations

import ast
import json
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from support.doubles import FakeServer

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
from shrinkfx.run.context import RunContext, Subject
from shrinkfx.run.explaining import explain_result
from shrinkfx.run.folder import (
    JOURNAL,
    load_finished_options,
    open_run_folder,
    record_run_end,
)
from shrinkfx.run.result import Result, VerifiedResult
from shrinkfx.testing import chain, whole

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
    assert shown == KnownFacts(fails=True, memory=OVERRUN)


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
        del known["fails"], known["memory"]  # as an earlier version has noted it
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
