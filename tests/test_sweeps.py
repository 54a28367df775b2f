"""Whole sweeps through the command line, of programs that are compiled for real."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from support.cases import CASES, ROOT, expected_here

CASE = ROOT / "repros" / "sweep_equal_dims"

pytestmark = pytest.mark.aoti


@pytest.fixture(name="model", scope="module")
def _model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    model = tmp_path_factory.mktemp("model") / "model.pt2"
    export = [sys.executable, "-W", "ignore", str(ROOT / "repros" / "export.py")]
    subprocess.run([*export, CASE.name, str(model)], check=True, timeout=300)
    return model


def command(model: Path, *options: str) -> Sequence[str]:
    preload = ["--preload", str(CASE / "planted.py")]
    start = [sys.executable, "-m", "shrinkfx", str(model), "--dynamic-sweep"]
    return [*start, *preload, *options]


def run(arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        arguments, cwd=ROOT, timeout=900, check=False, capture_output=True, text=True
    )


def rows(journal: Path) -> list[tuple[str, int, bool]]:
    """List what was asked, and whether it was answered."""
    ask = "SELECT sizes, attempt, example IS NOT NULL FROM examples ORDER BY number"
    with closing(sqlite3.connect(journal)) as db:
        return [
            (sizes, attempt, bool(done)) for sizes, attempt, done in db.execute(ask)
        ]


def kill_after(lines: int, told: str, arguments: Sequence[str]) -> None:
    """Start a sweep, and kill it once it has told so often of what matches."""
    started = subprocess.Popen(
        arguments,
        cwd=ROOT,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    assert started.stderr is not None
    for line in started.stderr:
        lines -= bool(re.search(told, line))
        if not lines:
            break
    os.kill(started.pid, signal.SIGKILL)
    started.communicate(timeout=600)


def results(folder: Path) -> dict[str, Any]:
    report: dict[str, Any] = json.loads((folder / "sweep.json").read_text())
    return {name: report[name] for name in ("findings", "sizes", "status", "examples")}


def test_killed_sweep_is_resumed_without_repeating_a_check(
    model: Path, tmp_path: Path
) -> None:
    settings = ["--examples", "40", "--seed", "5"]
    whole = run(command(model, *settings, "--out", str(tmp_path / "whole")))
    assert whole.returncode == 6, whole.stderr
    out = tmp_path / "out"
    told = random.randrange(1, 45), ": (passes|fails)"
    kill_after(*told, command(model, *settings, "-v", "--out", str(out)))
    before = rows(out / "journal.sqlite")
    assert before
    assert not (out / "sweep.json").exists()

    again = [sys.executable, "-m", "shrinkfx", "--resume"]
    resumed = run([*again, str(out)])
    assert resumed.returncode == 6, resumed.stderr
    asked = rows(out / "journal.sqlite")
    answered = [(sizes, attempt) for sizes, attempt, done in asked if done]
    assert len(answered) == len(set(answered)) > len(before)
    assert asked[: len(before) - 1] == before[:-1]
    assert results(out) == results(tmp_path / "whole")
    # The folder's name is all that differs, and that the program has all of its path.
    first, second = (done.stdout.splitlines()[:-2] for done in (whole, resumed))
    assert first == second
    for done in (whole, resumed):
        assert "failing-1.pt" in done.stdout.splitlines()[-1]

    finished = run([*again, str(out)])
    assert finished.returncode == resumed.returncode
    assert ": this run finished on " in finished.stderr
    other = run([*again, str(out), "--seed", "6"])
    assert other.returncode == 2
    assert "omit --seed" in other.stderr


def test_sweep_killed_during_its_reduction_resumes_the_reduction(
    model: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    settings = ["--examples", "40", "--seed", "5", "--until", "mismatch"]
    kill_after(1, " -> .* operators", command(model, *settings, "--out", str(out)))
    before = rows(out / "journal.sqlite"), answers(out / "journal.sqlite")
    assert before[1]
    resumed = run([sys.executable, "-m", "shrinkfx", "--resume", str(out)])
    assert resumed.returncode == 0, resumed.stderr
    assert rows(out / "journal.sqlite") == before[0]
    after = answers(out / "journal.sqlite")
    assert after[: len(before[1])] == before[1]
    assert len(after) == len(set(after))
    summary = json.loads((out / "summary.json").read_text())
    assert summary["checks"]["total"] == len(after)
    ends, sizes = declared((out / "repro.py").read_text())
    assert ends <= sizes


def declared(repro: str) -> tuple[set[int], set[int]]:
    """Find the ends of ranges that a repro declares, and the sizes that it runs."""
    runs = re.findall(r"^(?:passing|failing) = (.+)", repro, re.MULTILINE)
    dims = re.findall(r"torch\.export\.Dim\(.+?((?:, \w+=\d+)*)\)", repro)
    assert len(runs) == 2
    assert dims
    ends, sizes = (
        {int(n) for n in re.findall(r"\d+", "".join(s))} for s in (dims, runs)
    )
    return ends, sizes


def answers(journal: Path) -> list[tuple[str, str, str]]:
    """List the checks that came to their end; a verification is none."""
    ask = "SELECT digest, form, build FROM checks WHERE outcome IS NOT NULL"
    ask += " AND strategy <> 'verification'"
    with closing(sqlite3.connect(journal)) as db:
        return [(*row,) for row in db.execute(f"{ask} ORDER BY number")]


def test_sweep_out_of_minutes_keeps_its_findings(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    minutes = ["--max-minutes", "1", "--examples", "100000"]
    done = run(command(model, *minutes, "--out", str(out)))
    assert done.returncode == 4, done.stderr
    report = json.loads((out / "sweep.json").read_text())
    assert report["status"] == "stopped"
    for found in report["findings"]:
        assert (out / found["failing_inputs"]).exists()


def test_sweep_for_another_kind_reports_its_findings(
    model: Path, tmp_path: Path
) -> None:
    out, own = tmp_path / "out", tmp_path / "own_inputs.py"
    own.write_text(
        "import torch\n"
        "def inputs(**sizes):\n"
        "    return tuple(torch.ones(n, 16) for n in sizes.values())\n"
    )
    options = ["--until", "crash", "--examples", "8", "--inputs", str(own)]
    done = run(command(model, *options, "--out", str(out), "--json"))
    assert done.returncode == 3, done.stderr
    assert "mismatch" in done.stderr
    events = [json.loads(line) for line in done.stdout.splitlines()]
    names = [event["event"] for event in events]
    assert names[:2] == ["start", "baseline"]
    assert names.count("check") >= 8
    assert [e["kind"] for e in events if e["event"] == "step"] == ["mismatch"]
    assert names[-1] == "end"
    report = json.loads((out / "sweep.json").read_text())
    assert report["status"] == "missed"
    assert report["examples"]["inside"]["invalid"] == 0


def test_program_without_dynamic_dims_cannot_be_swept(tmp_path: Path) -> None:
    model = tmp_path / "model.pt2"
    static = ROOT / "repros" / "assert_roll_bound"
    export = [sys.executable, "-W", "ignore", str(ROOT / "repros" / "export.py")]
    subprocess.run([*export, static.name, str(model)], check=True, timeout=300)
    done = run(command(model, "--out", str(tmp_path / "out")))
    assert done.returncode == 2
    assert "no dynamic dims" in done.stderr


SWEPT = [case for case in CASES if case.name.startswith("sweep_")]


@pytest.mark.parametrize("case", SWEPT, ids=lambda p: p.name)
def test_reduced_sweep_case_keeps_the_dynamic_dims_of_the_failure(
    case: Path, tmp_path: Path
) -> None:
    expected = expected_here(case)
    model, out = tmp_path / "model.pt2", tmp_path / "out"
    export = [sys.executable, "-W", "ignore", str(ROOT / "repros" / "export.py")]
    subprocess.run([*export, case.name, str(model)], check=True, timeout=300)
    start = [sys.executable, "-m", "shrinkfx", str(model), "--dynamic-sweep"]
    planted = expected["preload"]
    preload = ["--preload", str(case / planted)] if planted else []
    options = ["--until", expected["kind"], "--seed", "7", "--out", str(out)]
    done = run([*start, *preload, *options])
    assert done.returncode == 0, done.stdout + done.stderr

    (found,) = json.loads((out / "sweep.json").read_text())["findings"]
    assert list(found["sizes"].values()) == expected["sweep"]["sizes"]
    assert list(found["nearest_pass"].values()) == expected["sweep"]["nearest"]
    summary = json.loads((out / "summary.json").read_text())
    assert summary["status"] == "reduced"
    assert summary["minimal"]
    assert summary["operators"]["before"] == expected["operators"]
    assert summary["operators"]["after"] <= expected["max_operators"]
    assert summary["dynamic_dims"]["after"] == expected["dynamic_dims"]
    runs = 10 if summary["kind"] in ("crash", "ima") else 3  # a fork shares its layout
    assert summary["verified"] == {"runs": runs, "failed": runs}

    # As source, with a dim for each size that matters and none for others.
    repro = out / "repro.py"
    declared = re.findall(r"^\w+ = torch\.export\.Dim\(", repro.read_text(), re.M)
    assert len(declared) == 1
    alone = tmp_path / "alone"
    alone.mkdir()
    shutil.copy(repro, alone)
    ran = subprocess.run(
        [sys.executable, repro.name],
        cwd=alone,
        timeout=600,
        check=False,
        capture_output=True,
        text=True,
    )
    assert ran.returncode
    assert ran.stdout.count("passes at") == 1
    confirmed = run([sys.executable, "-m", "shrinkfx", "--verify", str(repro)])
    assert confirmed.returncode == 0, confirmed.stdout


def test_repro_with_swapped_failing_and_passing_sizes_is_not_confirmed(
    model: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    options = ["--until", "mismatch", "--examples", "30", "--seed", "5"]
    assert run(command(model, *options, "--out", str(out))).returncode == 0
    repro = out / "repro.py"
    text = repro.read_text()
    assert "(passing, failing)" in text
    repro.write_text(text.replace("(passing, failing)", "(failing, passing)"))
    verify = [sys.executable, "-m", "shrinkfx", "--verify", str(repro)]
    assert run(verify).returncode == 3
