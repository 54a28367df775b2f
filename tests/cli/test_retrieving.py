"""How a candidate of a run is asked for: the run's folder is all that it takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shrinkfx.api import Retrieved
from shrinkfx.cli import task_output
from shrinkfx.cli.main import main
from shrinkfx.journal.journal import Journal
from shrinkfx.report.record import ReproFiles, VerifiedRepro


@pytest.mark.parametrize(
    ("typed", "moved"),
    [
        ("--candidate 3f2a --out DIR", None),
        ("--candidate 3f2a DIR", None),
        ("DIR --candidate 3f2a -q", None),
        ("new.pt2 --candidate 3f2a --out DIR", "new.pt2"),
    ],
)
def test_candidate_is_retrieved_by_the_folder_of_the_run(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    typed: str,
    moved: str | None,
) -> None:
    asked: list[tuple[Any, ...]] = []

    def retrieve(folder: str, digest: str, _: object, **rest: Any) -> Retrieved:
        asked.append((folder, digest, rest["model"]))
        return Retrieved("passes", 2, Path(folder) / "minimal.pt2", None)

    Journal(tmp_path / "journal.sqlite").close()
    monkeypatch.setattr("shrinkfx.api.retrieve", retrieve)
    assert main(typed.replace("DIR", str(tmp_path)).split()) == 3
    assert asked == [(str(tmp_path), "3f2a", moved)]
    assert "candidate: 2 operators: passes" in capsys.readouterr().out


def test_candidate_without_a_folder_prints_the_command(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["--candidate", "3f2a"]) == 2
    assert "shrinkfx --candidate 3f2a --out DIR" in capsys.readouterr().err


def test_retrieved_failing_candidate_prints_the_next_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written = ReproFiles((tmp_path / "repro.py",), "source")
    program = tmp_path / "minimal.pt2"
    came = task_output.print_candidate(
        Retrieved("crash", 2, program, VerifiedRepro(written, 3, 3))
    )
    assert came.exit_code == 0
    said = capsys.readouterr().out.splitlines()
    assert said[-2].startswith(
        "note:     only a full run writes ISSUE.md, report.html and the cause:"
    )
    assert said[-1].startswith(f"next:     shrinkfx {program}")
