"""Runs beside each other, on cores that are too few for them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from test_killed import ROOT, answers, outcome, text_of_repro

AT_ONCE = 10
TOOL = str(ROOT / "tests/support/torchless/command_line.py")

JUDGE = """
import json, sys, time
text = open(sys.argv[1], "rb").read()
if text.startswith(b"PK"):
    sys.exit(0)
kept = {*json.loads(text)["keep"]}
while "n0" in kept and "n23" not in kept:
    pass
if "n9" in kept and "n10" not in kept:
    time.sleep(1000)
sys.exit(not kept >= {"n7", "n12", "n23"})
"""
"""Loops for ever about some candidates, and sleeps for ever about others."""


def start(folder: Path, name: str, cores: set[int]) -> subprocess.Popen[str]:
    """Start a run, with a worker that needs no torch, on these cores."""
    command = [sys.executable, TOOL, folder, folder / "model.pt2", "--no-progress"]
    check = f"{sys.executable} -S {folder / 'judge.py'} {{}}"
    options = ["--check", check, "--timeout", "0.5", "--out", folder / name]
    return subprocess.Popen(
        [*map(str, command), *map(str, options)],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=partial(os.sched_setaffinity, 0, cores),
    )


@pytest.mark.slow
def test_runs_on_two_shared_cores_end_like_a_single_run(
    tmp_path: Path, marked: Callable[[], list[int]]
) -> None:
    subprocess.run([sys.executable, TOOL, str(tmp_path)], check=True)
    (tmp_path / "judge.py").write_text(JUDGE)
    cores = set(sorted(os.sched_getaffinity(0))[-2:])
    one = tmp_path / "alone"
    alone = start(tmp_path, one.name, cores)
    _, said = alone.communicate()
    assert alone.returncode == 0, said
    assert list(answers(one).values()).count("unresolved") >= 2
    names = [f"out-{number}" for number in range(AT_ONCE)]
    started = {name: start(tmp_path, name, cores) for name in names}
    for name, process in started.items():
        _, said = process.communicate()
        assert process.returncode == 0, said
        assert "flaky" not in said
        assert answers(tmp_path / name) == answers(one)
        assert outcome(tmp_path / name) == outcome(one)
        assert text_of_repro(tmp_path / name) == text_of_repro(one)
    assert marked() == []
