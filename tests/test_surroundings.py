"""Runs through a shell that leaves them little: no folder, no stream, few files."""

from __future__ import annotations

import shlex
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

pytestmark = pytest.mark.processes

SCRIPT = Path(__file__).parent / "support" / "torchless" / "command_line.py"

Run = Callable[[str], subprocess.CompletedProcess[str]]


@pytest.fixture(name="home", scope="module")
def _home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program, and what judges it without torch."""
    folder = tmp_path_factory.mktemp("torchless")
    subprocess.run([sys.executable, str(SCRIPT), str(folder)], check=True)
    return folder


@pytest.fixture(name="run")
def _run(home: Path, tmp_path: Path) -> Run:
    """Run a line of a shell in which TOOL stands for the tool, RUN for a short run."""
    tool = shlex.join([sys.executable, str(SCRIPT), str(home)])
    judge = f"{sys.executable} -S {home / 'judge.py'} {{}}"
    short = shlex.join([str(home / "model.pt2"), "--check", judge, "--max-checks", "2"])

    def run(line: str) -> subprocess.CompletedProcess[str]:
        line = line.replace("RUN", f"TOOL {short} --out out").replace("TOOL", tool)
        return subprocess.run(
            ["bash", "-o", "pipefail", "-c", line],
            cwd=tmp_path,
            check=False,
            capture_output=True,
            text=True,
            timeout=600,
        )

    return run


STOPPED = 4
"""What a run of two checks ends with."""


@pytest.mark.parametrize(
    "streams", ["<&- >&- 2>&-", "--json 2>&-", "2>/dev/full", "2> >(:)"]
)
def test_run_without_standard_streams_completes(
    run: Run, tmp_path: Path, streams: str
) -> None:
    done = run(f"RUN {streams}")
    assert done.returncode == STOPPED
    assert "Traceback" not in done.stderr
    assert (tmp_path / "out" / "repro.py").is_file()
    with closing(sqlite3.connect(tmp_path / "out" / "journal.sqlite")) as journal:
        assert journal.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_result_is_in_the_folder_if_stdout_is_full(run: Run, tmp_path: Path) -> None:
    done = run("RUN >/dev/full")
    assert done.returncode == STOPPED
    assert "cannot write to stdout: No space left on device" in done.stderr
    assert "Traceback" not in done.stderr
    assert (tmp_path / "out" / "repro.py").is_file()


def test_run_is_not_started_if_its_json_events_cannot_be_written(
    run: Run, tmp_path: Path
) -> None:
    done = run("RUN --json >/dev/full")
    assert done.returncode == 2
    said = "shrinkfx: --json: cannot write to stdout: No space left on device. "
    assert done.stderr == f"{said}The run was not started\n"
    assert not (tmp_path / "out").exists()


def test_list_output_may_be_closed_early_by_its_reader(run: Run) -> None:
    done = run(
        "export PYTHONUNBUFFERED=1; TOOL --list-strategies | (exec <&-; sleep 1)"
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(("option", "code"), [("--list-strategies", 2), ("--help", 0)])
def test_list_output_that_cannot_be_written_is_reported(
    run: Run, option: str, code: int
) -> None:
    done = run(f"TOOL {option} >/dev/full")
    assert done.returncode == code
    assert "cannot write to stdout: No space left on device" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("line", ["RUN", "TOOL --resume /", "TOOL /m.pt2"])
def test_removed_current_folder_is_reported(run: Run, line: str) -> None:
    done = run(f"mkdir gone; cd gone; rmdir ../gone; {line}")
    assert done.returncode == 2
    (said,) = done.stderr.splitlines()
    assert said.startswith("shrinkfx: the current folder no longer exists (")
    assert said.endswith("): cd to another folder")


def test_resume_is_refused_if_the_original_current_folder_is_gone(
    run: Run, tmp_path: Path
) -> None:
    assert run("mkdir then; cd then; RUN --out ../out").returncode == STOPPED
    done = run("rmdir then; TOOL --resume out --max-checks 3")
    assert done.returncode == 2
    assert f"mkdir -p {tmp_path}/then, or start a new run" in done.stderr
    assert run("mkdir then; TOOL --resume out --max-checks 3").returncode == STOPPED


def test_too_low_limit_of_open_files_is_reported_with_the_needed_number(
    run: Run,
) -> None:
    done = run("ulimit -n 12; RUN")
    assert done.returncode == 2
    (said,) = done.stderr.splitlines()
    assert said.startswith(
        "shrinkfx: this process may open 12 files at once, but a run "
    )
    assert "needs 64: run ulimit -n 64 or higher" in said
    assert run("ulimit -n 64; RUN").returncode == STOPPED
