"""Whole runs through the command line, with real compiles that end early."""

from __future__ import annotations

import ast
import json
import os
import resource
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
CASE = ROOT / "repros" / "compile_lowering_raises"

pytestmark = [pytest.mark.aoti, pytest.mark.every_run]


@pytest.fixture(name="model", scope="module")
def _model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    model = tmp_path_factory.mktemp("model") / "model.pt2"
    export = [sys.executable, "-W", "ignore", str(ROOT / "repros" / "export.py")]
    subprocess.run([*export, CASE.name, str(model)], check=True, timeout=300)
    return model


def command(model: Path, out: Path, *options: str) -> Sequence[str]:
    preload = ["--preload", str(CASE / "planted.py")]
    start = [sys.executable, "-m", "shrinkfx", str(model), "--out", str(out)]
    return [*start, *preload, *options]


def run(arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        arguments, cwd=ROOT, timeout=900, check=False, capture_output=True, text=True
    )


def test_spent_budget_leaves_a_verified_repro_of_the_smallest_program(
    model: Path, tmp_path: Path
) -> None:
    before = used_by_children()
    done = run(command(model, tmp_path / "out", "--max-checks", "2", "--json"))
    used = used_by_children() - before
    assert done.returncode == 4, done.stderr
    events = [json.loads(line) for line in done.stdout.splitlines()]
    names = [event["event"] for event in events if event["event"] != "step"]
    assert names == ["start", "baseline", "check", "check", "end"]
    assert (events[-1]["status"], events[-1]["exit_code"]) == ("stopped", 4)
    assert "verified: 3 of 3" in done.stderr
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["status"] == "stopped"
    assert summary["checks"]["total"] == 2
    assert summary["operators"]["after"] < summary["operators"]["before"]
    assert summary["verified"] == {"runs": 3, "failed": 3}
    assert not summary["minimal"]
    # What is used once the summary is written, the parts being rounded, is in no meter.
    assert -0.5 < used - sum(summary["cpu_seconds"].values()) < 2
    fetch_a_candidate(tmp_path / "out")
    explain(tmp_path / "out")


def used_by_children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def explain(out: Path) -> None:
    """Ask for the cause of a result, whoever has left that."""
    before = (out / "repro.py").read_text()
    done = run([sys.executable, "-m", "shrinkfx", "--explain", str(out)])
    assert done.returncode == 0, done.stderr
    assert "aten.cumsum.default" in done.stdout
    assert "falls back" in done.stdout
    told = json.loads((out / "explain.json").read_text())
    assert [one["operator"] for one in told["guilty"]] == ["aten.cumsum.default"]
    repro = (out / "repro.py").read_text()
    assert ast.dump(ast.parse(repro)) == ast.dump(ast.parse(before))
    assert "# Cause:" in repro


def fetch_a_candidate(out: Path) -> None:
    with closing(sqlite3.connect(out / "journal.sqlite")) as db:
        ask = "SELECT digest, outcome FROM checks ORDER BY number LIMIT 1"
        digest, outcome = db.execute(ask).fetchone()
    fetch = [sys.executable, "-m", "shrinkfx", "--candidate", digest[:10]]
    done = run([*fetch, "--out", str(out)])
    fails = outcome == "reproduced"
    assert done.returncode == (0 if fails else 3), done.stderr
    folder = out / f"candidate-{digest[:12]}"
    assert (folder / "minimal.pt2").is_file()
    assert (folder / "repro.py").is_file() == fails
    assert ("cannot scan a padded layout" in done.stdout) == fails


HOLDS = """
import sys
import zipfile

archive = zipfile.ZipFile(sys.argv[1])
texts = [archive.read(name) for name in archive.namelist() if name.endswith(".json")]
sys.exit(b"aten.cumsum" not in b"".join(texts))
"""


def test_check_command_replaces_compilation(model: Path, tmp_path: Path) -> None:
    out, check = tmp_path / "out", tmp_path / "holds.py"
    check.write_text(HOLDS)
    done = run(command(model, out, "--check", f"{sys.executable} {check} {{}}"))
    assert done.returncode == 0, done.stderr
    summary = json.loads((out / "summary.json").read_text())
    assert summary["kind"] == "check"
    assert summary["operators"]["after"] == 1
    assert summary["verified"] == {"runs": 3, "failed": 3}
    made = subprocess.run(
        [sys.executable, str(out / "repro.py")], cwd=tmp_path, timeout=300, check=False
    )
    assert made.returncode == 0
    judged = subprocess.run(
        [sys.executable, check, tmp_path / "repro.pt2"], check=False
    )
    assert judged.returncode == 0


def test_failure_of_another_kind_is_reported_and_leaves_no_folder(
    model: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    done = run(command(model, out, "--until", "assert", "--strict-kind"))
    assert done.returncode == 3
    assert "cannot scan a padded layout" in done.stderr
    assert "--until compile-error" in done.stderr
    assert "Traceback" not in done.stderr
    assert not out.exists()


def test_interrupt_leaves_a_verified_repro_and_no_process(
    model: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    started = subprocess.Popen(
        command(model, out, "--no-progress"),
        cwd=ROOT,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "RUN_MARK": str(tmp_path)},
    )
    assert started.stderr is not None
    for line in started.stderr:
        if " -> " in line:
            break
    os.killpg(started.pid, signal.SIGINT)
    _, said = started.communicate(timeout=600)
    assert started.returncode == 4, said
    assert json.loads((out / "summary.json").read_text())["verified"]["failed"] == 3
    deadline = time.monotonic() + 30
    while carrying(f"RUN_MARK={tmp_path}") and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not carrying(f"RUN_MARK={tmp_path}")


def carrying(mark: str) -> list[str]:
    """List the processes that have a variable in their environment."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if mark.encode() in (entry / "environ").read_bytes().split(b"\0"):
                found.append(entry.name)
        except OSError:
            continue
    return found
