"""The table of ``--list``."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from shrinkfx.api import Run
from shrinkfx.cli.main import main
from shrinkfx.cli.task_output import render_run_lines
from shrinkfx.run import folder

AT = time.mktime((2026, 11, 22, 17, 31, 0, 0, 0, -1))
HERE = Path("shrinkfx-out")
OVER = Run(
    HERE / "model-1",
    "reduced",
    "model.pt2",
    "compile-error",
    (65, 2),
    (3, 3),
    11,
    206.4,
    AT,
)
WORKS = Run(HERE / "model-2", "at work", "model.pt2", checks=0, seconds=8.0, at=AT)
STOPPED = Run(HERE / "other-1", "stopped", "other.pt2", "nan", (87, 12), at=AT)
DAMAGED = Run(HERE / "other-2", "damaged", at=AT, problem="it is empty; run anew")

TABLE = """\
name     status   program    kind           operators  verified  checks  seconds  when
model-1  reduced  model.pt2  compile-error    65 -> 2    3 of 3      11      206  2026-11-22 17:31
model-2  at work  model.pt2  -                      -         -       0        8  2026-11-22 17:31
other-1  stopped  other.pt2  nan             87 -> 12         -       -        -  2026-11-22 17:31
other-2  damaged  -          -                      -         -       -        -  2026-11-22 17:31
to resume an unfinished run: shrinkfx --resume shrinkfx-out/other-1
shrinkfx-out/other-2: it is empty; run anew
"""  # noqa: E501


def test_runs_are_listed_with_commands_to_resume() -> None:
    runs = [OVER, WORKS, STOPPED, DAMAGED]
    assert [*render_run_lines(runs, HERE, 1000)] == TABLE.splitlines()


def test_capture_without_a_run_is_listed_with_commands_to_resume() -> None:
    left = Run(HERE / "serve-1", "captured", "serve.py", at=AT)
    *_, row, on, other = render_run_lines([left], HERE, 1000)
    assert row.split()[:3] == ["serve-1", "captured", "serve.py"]
    assert on.endswith("shrinkfx --resume shrinkfx-out/serve-1")
    assert other.endswith("shrinkfx shrinkfx-out/serve-1 --program N")


def test_names_are_truncated_in_a_narrow_terminal() -> None:
    long = Run(HERE / "transformer_of_layers-1", "reduced", "transformer_of_layers.pt2")
    _, whole = render_run_lines([long], HERE, 1000)
    assert whole.startswith(
        "transformer_of_layers-1  reduced  transformer_of_layers.pt2"
    )
    _, row = render_run_lines([long], HERE, 105)
    assert len(row) <= 105 < len(whole)
    assert row.startswith("transformer_of_layers-1  reduced  transf")
    _, row = render_run_lines([long], HERE, 90)
    assert len(row) <= 90
    assert row.startswith("transf...  reduced  trans...  -")


def test_finished_run_is_listed_without_a_command_to_resume() -> None:
    assert not any(
        "--resume" in line for line in render_run_lines([OVER, WORKS], HERE, 1000)
    )


def test_folder_without_runs_prints_the_command_to_start_a_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--list", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert said == f"{tmp_path} contains no runs: start one with shrinkfx MODEL.pt2\n"


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("--list --until ima", "omit --until"),
        ("model.pt2 --list", "omit model.pt2"),
        ("--list --resume out", "omit --resume"),
        ("--list --capture -- python serve.py", "omit the command"),
        ("--list --explain", "omit --explain"),
    ],
)
def test_other_options_with_list_are_refused(
    capsys: pytest.CaptureFixture[str], typed: str, said: str
) -> None:
    assert main(typed.split()) == 2
    told = capsys.readouterr().err
    assert told.startswith("shrinkfx: --list lists the runs in a folder and exits")
    assert said in told


def test_missing_folder_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["--list"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("shrinkfx: --list shrinkfx-out: No such file or directory\n")
    assert "shrinkfx MODEL.pt2" in said


def test_list_is_printed_as_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(folder, "list_runs", lambda *_: [OVER, STOPPED])
    assert main(["--list", "--json"]) == 0
    end = json.loads(capsys.readouterr().out)
    assert (end["event"], end["status"], end["exit_code"]) == ("end", "listed", 0)
    over, stopped = end["result"]["runs"]
    assert (over["folder"], over["verified"]) == ("shrinkfx-out/model-1", [3, 3])
    assert (stopped["status"], stopped["operators"]) == ("stopped", [87, 12])
