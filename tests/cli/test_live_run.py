"""A whole run in a terminal of 80 columns: its live line, and its last lines."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import threading
import time
from pathlib import Path

import pytest
from support.terminals import read_to_the_end

pytestmark = pytest.mark.processes

SCRIPT = Path(__file__).parents[1] / "support" / "torchless" / "command_line.py"
COLUMNS = 80
LIVE = re.compile(r"(baseline|search|simplifying|verifying|explaining) \d+:\d\d")


def in_a_terminal(*command: str) -> tuple[int, str]:
    """Run a command that writes to a terminal, and return its code and all it wrote.

    It reads nothing from there: the fake of Python, told to import torch, would wait.
    """
    ours, theirs = pty.openpty()
    size = struct.pack("HHHH", 24, COLUMNS, 0, 0)
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, size)
    nothing = subprocess.DEVNULL
    process = subprocess.Popen(command, stdin=nothing, stdout=theirs, stderr=theirs)
    os.close(theirs)
    deadline = threading.Timer(300, process.kill)
    deadline.start()
    try:
        said = read_to_the_end(ours)
        return process.wait(), said
    finally:
        deadline.cancel()


def test_live_line_shows_the_phases_of_a_run_and_disappears(
    tmp_path: Path,
) -> None:
    subprocess.run([sys.executable, str(SCRIPT), str(tmp_path)], check=True)
    tool = [sys.executable, str(SCRIPT), str(tmp_path)]
    judge = f"{sys.executable} -S {tmp_path / 'judge.py'} {{}}"
    out = tmp_path / "out"
    options = [str(tmp_path / "model.pt2"), "--check", judge, "--out", str(out)]
    began = time.monotonic()
    code, said = in_a_terminal(*tool, *options)
    took = time.monotonic() - began
    assert code == 0, said
    lines = re.split(r"[\r\n]+", said)
    live = [line.rstrip() for line in lines if LIVE.match(line)]
    phases = [LIVE.match(line)[1] for line in live]  # type: ignore[index]
    assert phases[0] == "baseline"
    assert "search" in phases
    order = ["baseline", "search", "simplifying", "verifying", "explaining"]
    assert sorted(phases, key=order.index) == phases
    assert max(map(len, live)) < COLUMNS
    assert any(re.search(r"; \d+ operators, \d+ checks.*: \w+", line) for line in live)
    assert len(live) > took / 3
    said_last = [line for line in lines if line.strip()][-5:]
    verified, repro, beside, careful, following = said_last
    assert beside == "see also: report.html"
    assert careful.startswith("privacy:  parts of your model in the repro: ")
    assert not LIVE.search(following)
    assert verified.startswith("verified: ")
    assert repro == f"repro:    {out}/repro.py"
    assert following.startswith(f"next:     python {out}/repro.py")
    assert any(line.startswith("result:   reduced from ") for line in lines)
