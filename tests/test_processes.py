"""What ``/proc`` says of processes that spin, sleep and have threads."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from shrinkfx.system.processes import (
    Sample,
    count_runnable_threads,
    count_usable_cores,
    sample_processes,
)

WaitFor = Callable[[Callable[[], object]], None]
Python = Callable[[str], int]

SPIN = "while True: pass"
SLEEP = "import time; time.sleep(1000)"
HIDDEN_SPIN = f"""
import threading
threading.Thread(target=lambda: exec({SPIN!r}), daemon=True).start()
threading.Event().wait()
"""
CHILD_THAT_ENDED = """
import os, time
child = os.fork()
while time.process_time() < 0.1: pass
child or os._exit(0)
os.wait()
time.sleep(1000)
"""


@pytest.fixture(name="python")
def _python() -> Iterator[Python]:
    started = []

    def start(code: str) -> int:
        started.append(subprocess.Popen([sys.executable, "-S", "-c", code]))
        return started[-1].pid

    yield start
    for process in started:
        process.kill()
        process.wait()


def test_spinning_process_is_runnable_and_uses_cpu_time(
    python: Python, wait_for: WaitFor
) -> None:
    pid = python(SPIN)
    wait_for(lambda: sample_processes([pid]).cpu_seconds > 0.2)
    seen = sample_processes([pid])
    assert (seen.runnable, seen.is_asleep) == (1, False)


def test_sleeping_process_uses_no_cpu_time(python: Python, wait_for: WaitFor) -> None:
    pid = python(SLEEP)

    def does_nothing() -> bool:
        before = sample_processes([pid])
        time.sleep(0.2)
        return before.is_asleep and sample_processes([pid]) == before

    wait_for(does_nothing)


def test_running_thread_behind_a_sleeping_main_thread_is_counted(
    python: Python, wait_for: WaitFor
) -> None:
    pid = python(HIDDEN_SPIN)
    wait_for(lambda: sample_processes([pid]).cpu_seconds > 0.2)
    state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    assert state == "S"
    assert not sample_processes([pid]).is_asleep


def test_cpu_time_of_reaped_children_is_counted(
    python: Python, wait_for: WaitFor
) -> None:
    pid = python(CHILD_THAT_ENDED)
    wait_for(
        lambda: (
            sample_processes([pid]).is_asleep
            and sample_processes([pid]).cpu_seconds >= 0.15
        )
    )


def test_ended_process_has_an_empty_sample() -> None:
    assert sample_processes([2**22 + 1]) == Sample()


def test_runnable_threads_of_the_machine_are_counted(
    python: Python, wait_for: WaitFor
) -> None:
    for _ in range(2):
        python(SPIN)
    wait_for(lambda: count_runnable_threads() >= 2)


@pytest.mark.parametrize(
    ("cgroup", "files", "cores"),
    [
        ("", {}, None),
        ("0::/user/run", {"user/run/cpu.max": "max 100000"}, None),
        ("0::/user/run", {"user/cpu.max": "50000 100000"}, 1),
        ("0::/seen/from/outside", {"cpu.max": "100000 100000"}, 1),
        (
            "4:cpu,cpuacct:/docker/b",
            {
                "cpu/docker/b/cpu.cfs_quota_us": "20000",
                "cpu/docker/b/cpu.cfs_period_us": "100000",
            },
            1,
        ),
        (
            "4:cpu:/",
            {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"},
            None,
        ),
    ],
)
def test_usable_cores_respect_the_cgroup_limit(
    tmp_path: Path, cgroup: str, files: dict[str, str], cores: int | None
) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text(f"{cgroup}\n" if cgroup else "")
    for name, text in files.items():
        file = tmp_path / "sys/fs/cgroup" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")
    assert count_usable_cores(tmp_path) == (cores or len(os.sched_getaffinity(0)))
