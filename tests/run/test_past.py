"""The folder of a run, named alone, is that run: over, or one to go on with."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest
from support.pages import explained, searched, transformer

from shrinkfx.api import is_run, past
from shrinkfx.cli.main import main
from shrinkfx.findings.record import Explanation
from shrinkfx.journal.journal import Journal
from shrinkfx.options.options import Options
from shrinkfx.run.explaining import report_folder

TOOL = Path(__file__).resolve().parents[1] / "support" / "torchless" / "command_line.py"


def called(
    home: Path, *arguments: str, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    tool: Sequence[str] = [sys.executable, str(TOOL), str(home), *arguments]
    return subprocess.run(tool, capture_output=True, text=True, check=False, cwd=cwd)


@pytest.mark.processes
def test_finished_run_is_reported_and_no_new_run_started(tmp_path: Path) -> None:
    called(tmp_path)
    judge = f"{sys.executable} -S {tmp_path / 'judge.py'} {{}}"
    model = str(tmp_path / "model.pt2")
    first = called(tmp_path, model, "--check", judge, cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    (out,) = (tmp_path / "shrinkfx-out").iterdir()
    kept = {path.name: path.read_bytes() for path in out.iterdir() if path.is_file()}
    named = f"shrinkfx-out/{out.name}"
    for typed in ([named], ["--resume", named]):
        again = called(tmp_path, *typed, cwd=tmp_path)
        assert again.returncode == 0, again.stderr
        assert "this run finished on 20" in again.stderr
        ending = first.stdout.splitlines()
        said = again.stdout.splitlines()
        assert said[1 : len(ending)] == ending[1:]  # the first has seconds, rounded
        assert said[0].startswith("result:   reduced from ")
        assert said[len(ending) :] == [
            f"report:   to regenerate the report: shrinkfx --report {named}",
            f"explain:  for the full root-cause analysis: shrinkfx --explain {named}",
            f"new run:  to reduce the same program again: shrinkfx {model}",
        ]
    assert {p.name: p.read_bytes() for p in out.iterdir() if p.is_file()} == kept
    assert len([*out.parent.iterdir()]) == 1


def over(out: Path, model: Path) -> Path:
    """Leave a run of a program that is over, and what is known of its cause."""
    explained(searched(out, transformer(2)))
    with closing(Journal(out / "journal.sqlite")) as journal:
        journal.note("run", {"options": Options(model).to_json()})
        result = journal.fact("result")
        journal.note("result", {**result, "seen": None})
    summary = json.loads((out / "summary.json").read_text())
    told = {"files": ["repro.py"], "other_failures": [], "guard_pages": None}
    rate = {"rate": {"before": 1.0, "after": 1.0}}
    (out / "summary.json").write_text(json.dumps({**summary, **told, **rate}))
    return out


@pytest.mark.parametrize("anonymous", [False, True])
def test_terminal_and_report_use_the_input_names_of_the_repro(
    tmp_path: Path, anonymous: bool
) -> None:
    out, model = tmp_path / "out", tmp_path / "model.pt2"
    over(out, model)
    with closing(Journal(out / "journal.sqlite")) as journal:
        options = Options(model, anonymous=anonymous)
        journal.note("run", {"options": options.to_json()})
        result = journal.fact("result")
        journal.note("result", {**result, "renamed": {"token_ids": "x"}})
    found = Explanation(cause=("Size of input token_ids is lost.",))
    (out / "explain.json").write_text(found.to_line())
    both = "Size of input x (named token_ids in the input program) is lost."
    came = past(out).came
    assert came is not None
    assert came.cause == (found.cause if anonymous else (both,))
    text = report_folder(out).read_text()
    assert (both in text) is not anonymous
    assert ("Size of input x is lost." in text) is anonymous


@pytest.mark.parametrize("damaged", ["", "{}", "[1]", '{"signature": 3}'])
def test_unreadable_summary_leaves_the_journal_as_the_source(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], damaged: str
) -> None:
    out = over(tmp_path / "out", tmp_path / "model.pt2")
    (out / "summary.json").write_text(damaged)
    assert past(out).came is None
    assert main([str(out)]) == 0
    told = capsys.readouterr()
    assert ": this run finished on" in told.err
    assert told.out.splitlines()[-1].endswith(f"shrinkfx {tmp_path / 'model.pt2'}")


def test_interrupted_run_named_by_its_folder_is_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[object, ...]] = []

    class Goes(Exception):
        """It went on."""

    def resume(folder: str, **told: object) -> None:
        asked.append((folder, told["model"], told["max_minutes"]))
        raise Goes

    monkeypatch.setattr("shrinkfx.api.resume", resume)
    Journal(tmp_path / "journal.sqlite").close()
    with pytest.raises(Goes):
        main([str(tmp_path), "--max-minutes", "3"])
    assert asked == [(str(tmp_path), None, 3.0)]


def test_folder_without_a_run_is_not_a_run(tmp_path: Path) -> None:
    assert not is_run(tmp_path)
    (tmp_path / "minifier_launcher.py").touch()
    assert not is_run(tmp_path)
    capture = tmp_path / "capture"
    capture.mkdir()
    (capture / "end.json").touch()
    assert is_run(tmp_path)
    assert not is_run(capture)  # a program for another run
