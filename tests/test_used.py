"""CPU-seconds of this process and of all that it has started."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from shrinkfx.system.processes import (
    ProcessState,
    measure_earlier_cpu_s,
    measure_tree_cpu_s,
)

BURN = """
import os, subprocess, sys, time
if sys.argv[1] == "above":
    subprocess.run([sys.executable, sys.argv[0], "below"], stdin=subprocess.DEVNULL)
end = time.process_time() + 0.3
while time.process_time() < end:
    pass
print(flush=True)
sys.stdin.read()
"""


@pytest.mark.processes
def test_cpu_time_of_the_tree_includes_living_and_reaped_children(
    tmp_path: Path,
) -> None:
    script = tmp_path / "burn.py"
    script.write_text(BURN)
    before = measure_tree_cpu_s()
    with subprocess.Popen(
        [sys.executable, script, "above"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as living:
        assert living.stdin
        assert living.stdout
        assert [living.stdout.readline() for _ in range(2)] == [b"\n"] * 2
        while_it_lives = measure_tree_cpu_s() - before
        assert 0.6 <= round(while_it_lives, 1) < 1.2
        living.stdin.close()
    assert abs(measure_tree_cpu_s() - before - while_it_lives) < 0.1


def test_first_run_of_a_process_has_no_earlier_cpu_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As the command does: its imports are the first run's."""
    monkeypatch.setattr(ProcessState, "unclaimed", True)
    before = measure_tree_cpu_s()
    assert measure_earlier_cpu_s() == 0.0
    assert measure_earlier_cpu_s() >= before
