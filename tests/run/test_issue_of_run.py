"""The issue of a run: written at its end, and anew when its cause is asked for."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from support.doubles import FakeServer

from shrinkfx.check.oracle import CheckClient, Limits
from shrinkfx.events import Event, NoteAdded
from shrinkfx.failure.signature import Kind, Signature, Stage
from shrinkfx.findings.record import Explanation
from shrinkfx.journal.journal import Journal
from shrinkfx.options.options import Options
from shrinkfx.protocol.answers import Collected, Ending, Raised
from shrinkfx.report.record import (
    Failure,
    Programs,
    ProgramSize,
    ReproFiles,
    RunRecord,
    VerifiedRepro,
)
from shrinkfx.run import explaining as issue
from shrinkfx.run.context import RunContext
from shrinkfx.run.explaining import (
    add_versions,
    collect_versions,
    rewrite_issue,
    write_issue,
)
from shrinkfx.run.folder import JOURNAL, describe_request
from shrinkfx.system.folder_lock import lock_folder

SEEN = Signature(Kind.EXCEPTION, Stage.RUN, text="RuntimeError: no")
SIZE = ProgramSize(1)
RECORD = RunRecord(
    Failure(SEEN, SEEN),
    Programs(SIZE, SIZE, 1, ("aten.relu.default",)),
    verified=VerifiedRepro(ReproFiles((Path("repro.py"),), "source"), 3, 3),
)
SCRIPT = "# Seen on: torch\n\nimport torch\n"
COLLECTED = Ending(
    "exit", answer=Collected("PyTorch version: 9\non gpu-17", ("gpu-17",))
)


@pytest.fixture(name="out")
def _out(tmp_path: Path) -> Path:
    (tmp_path / "repro.py").write_text(SCRIPT)
    return tmp_path


def client_of(server: FakeServer) -> CheckClient:
    return CheckClient(server, Limits(10.0, 1 << 30))


def notes(told: list[Event]) -> str:
    return "\n".join(event.text for event in told if isinstance(event, NoteAdded))


def test_issue_is_written_at_the_end_and_rewritten_with_a_new_cause(out: Path) -> None:
    server, told = FakeServer(COLLECTED), list[Event]()
    with closing(Journal(out / JOURNAL)) as journal:
        context = RunContext(Options(Path("m.pt2")), out, told.append, journal)
        versions = collect_versions(context, client_of(server), SEEN)
        path = write_issue(context, RECORD, Explanation(), versions)
        assert path == out / "ISSUE.md"
        first = path.read_text()
    assert "PyTorch version: 9\non HOST" in first
    assert "- The root cause." in first
    with closing(Journal(out / JOURNAL)) as journal:
        options = Options(Path("m.pt2"), title="relu raises")
        context = RunContext(options, out, told.append, journal)
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
    out: Path, ending: Ending
) -> None:
    told: list[Event] = []
    context = RunContext(Options(Path("m.pt2")), out, told.append)
    versions = collect_versions(context, client_of(FakeServer(ending)), SEEN)
    assert versions == ""
    assert "torch.utils.collect_env" in notes(told)
    record = replace(RECORD, versions={"torch": "2.13.0", "Python": "3.11"})
    path = write_issue(context, record, Explanation(), versions)
    assert path is not None
    assert "```\ntorch 2.13.0\nPython 3.11\n```" in path.read_text()


@pytest.mark.parametrize("raised", [KeyboardInterrupt(), RecursionError("deep")])
def test_exception_while_writing_the_issue_keeps_the_result(
    out: Path, raised: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> str:
        raise raised

    monkeypatch.setattr(issue, "issue_text", fail)
    told: list[Event] = []
    with closing(Journal(out / JOURNAL)) as journal:
        context = RunContext(Options(Path("m.pt2")), out, told.append, journal)
        assert write_issue(context, RECORD, Explanation(), "") is None
    assert "ISSUE.md could not be written" in notes(told)
    assert (out / "repro.py").read_text() == SCRIPT
    assert sorted(path.name for path in out.iterdir() if path.suffix != ".sqlite") == [
        "repro.py"
    ]


@pytest.mark.parametrize("anonymous", [True, False])
def test_issue_uses_the_input_names_of_the_repro(out: Path, anonymous: bool) -> None:
    options = Options(Path("m.pt2"), anonymous=anonymous)
    programs = replace(RECORD.programs, renamed={"token_ids": "x"})
    found = Explanation(cause=("The size of input token_ids is lost.",))
    with closing(Journal(out / JOURNAL)) as journal:
        context = RunContext(options, out, lambda _: None, journal)
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
from test_issue_of_run import *

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


def test_issue_is_utf_8_in_any_locale(out: Path) -> None:
    """In a process whose locale has no such letters."""
    here = Path(__file__).parent
    path = os.pathsep.join(map(str, (here.parents[1], here.parent, here)))
    ascii_only = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    script = out / "in_ascii.py"
    script.write_text(IN_ASCII, encoding="utf-8")
    subprocess.run(
        [sys.executable, str(script), str(out)],
        env={**os.environ, **ascii_only, "PYTHONPATH": path},
        check=True,
    )


def test_failure_judged_by_a_command_has_no_issue(out: Path) -> None:
    judged = Signature(Kind.CHECK, Stage.RUN, "")
    record = replace(RECORD, failure=Failure(judged, judged))
    context = RunContext(Options(Path("m.pt2")), out, lambda _: None)
    assert write_issue(context, record, Explanation(), "") is None
    assert not (out / "ISSUE.md").exists()


def finish_run(out: Path) -> None:
    """Write the folder of a finished run with an issue."""
    options = Options(out / "m.pt2", title="relu raises")
    with closing(Journal(out / JOURNAL)) as journal:
        journal.note("run", describe_request(options))
        context = RunContext(options, out, lambda _: None, journal)
        record = replace(RECORD, versions={"torch": "2.13.0"})
        versions = collect_versions(context, client_of(FakeServer(COLLECTED)), SEEN)
        assert write_issue(context, record, Explanation(), versions)


def test_issue_lists_the_verdicts_by_version(out: Path) -> None:
    finish_run(out)
    told: list[Event] = []
    assert "PyTorch versions other than 2.13.0" in (out / "ISSUE.md").read_text()
    repro = out / "repro.py"
    add_versions(repro, {"2.14.1": True, "2.13.0": False, "2.9.1": None}, told.append)
    add_versions(repro, {"2.15.0": True, "2.13.0": False}, told.append)
    said = "\nFails on torch 2.14.1 and 2.15.0; passes on 2.13.0.\n"
    written = (out / "ISSUE.md").read_text()
    assert said in written
    assert "other versions of PyTorch" not in written
    assert "- Other devices." in written
    assert written.startswith("# relu raises\n")
    assert "PyTorch version: 9" in written
    with closing(Journal(out / JOURNAL)) as journal:  # as --explain does
        context = RunContext(Options(Path("m.pt2")), out, told.append, journal)
        found = Explanation(cause=("aten.relu.default is lost.",))
        rewrite_issue(context, client_of(FakeServer(COLLECTED)), found)
    assert said in (out / "ISSUE.md").read_text()
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
    out: Path, name: str, verdicts: dict[str, bool | None]
) -> None:
    finish_run(out)
    before = (out / "ISSUE.md").read_text()
    add_versions(out / name, verdicts, lambda _: None)
    assert (out / "ISSUE.md").read_text() == before


def test_failure_to_add_versions_is_a_note(out: Path) -> None:
    finish_run(out)
    told: list[Event] = []
    with ThreadPoolExecutor(1) as others, lock_folder(out):
        verdicts = {"2.13.0": True, "2.14.0": True}
        others.submit(add_versions, out / "repro.py", verdicts, told.append).result()
    assert "ISSUE.md could not be written: another shrinkfx is running" in notes(told)
