"""Runs beside each other, on cores that are too few for them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from test_killed import ROOT, answers, outcome, text_of_repro

AT_ONCE = 10

JUDGE = """
import json, sys, time
text = open(sys.argv[1], "rb").read()
if text.startswith(b"PK"):
    sys.exit(0)
kept = {*json.loads(text)["keep"]}
while "n20" in kept and "n21" not in kept:
    pass
if "n15" in kept and "n16" not in kept:
    time.sleep(1000)
sys.exit(not kept >= {"n7", "n12", "n23"})
"""
"""Loops for ever about some candidates, and sleeps for ever about others."""


class Runs:
    """Starts runs of the same program, with a worker that needs no torch."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        script = ROOT / "tests/torchless/command_line.py"
        self._tool = [sys.executable, str(script), str(folder)]
        subprocess.run(self._tool, check=True)
        (folder / "judge.py").write_text(JUDGE)

    def start(
        self, name: str, *, core: set[int] | None = None
    ) -> subprocess.Popen[str]:
        check = f"{sys.executable} -S {self.folder / 'judge.py'} {{}}"
        model, out = str(self.folder / "model.pt2"), str(self.folder / name)
        options = ["--check", check, "--timeout", "0.5", "--no-progress", "--out", out]
        tied = f"import os; os.sched_setaffinity(0, {core or os.sched_getaffinity(0)})"
        begin = f"{tied}; os.execv({sys.executable!r}, __import__('sys').argv[1:])"
        return subprocess.Popen(
            [sys.executable, "-S", "-c", begin, *self._tool, model, *options],
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )


@pytest.mark.slow
def test_runs_that_share_two_cores_end_as_one_alone(tmp_path: Path) -> None:
    runs = Runs(tmp_path)
    names = [f"out-{number}" for number in range(AT_ONCE)]
    cores = set(sorted(os.sched_getaffinity(0))[-2:])
    _, said = (alone := runs.start("alone")).communicate()
    assert alone.returncode == 0, said
    started = {name: runs.start(name, core=cores) for name in names}
    for name, process in started.items():
        _, said = process.communicate()
        print(said)
        assert process.returncode == 0, said
        assert "flaky" not in said
        assert said.count("the machine is busy") <= 1
        assert answers(tmp_path / name) == answers(tmp_path / "alone")
        assert outcome(tmp_path / name) == outcome(tmp_path / "alone")
        assert text_of_repro(tmp_path / name) == text_of_repro(tmp_path / "alone")
    unresolved = list(answers(tmp_path / "alone").values()).count("unresolved")
    assert unresolved >= 2
