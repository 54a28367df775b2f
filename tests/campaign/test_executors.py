"""Where runs run: what a killed process or node leaves, and what Ray does then."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from shrinkfx.campaign.executors import RayExecutor, Runs
from shrinkfx.campaign.programs import Program
from shrinkfx.campaign.runs import Campaign, Status, run_campaign
from shrinkfx.errors import UsageError
from shrinkfx.system.processes import read_process_state

pytestmark = pytest.mark.processes

FAKE = """
import json, os, sys, time
words = sys.argv[1:]
is_new = "--out" in words
out = words[words.index("--out") + 1] if is_new else words[1]
os.makedirs(out, exist_ok=True)
open(os.path.join(out, "journal.sqlite"), "w").close()
with open(os.path.join(out, "parents"), "a") as parents:
    print(os.getppid(), file=parents)
if is_new and os.path.basename(out) == "long":
    time.sleep(120)
print(json.dumps({"event": "end", "elapsed": 1.0, "error": "", "result": {}}))
"""


@pytest.fixture(name="runs")
def _runs(tmp_path: Path) -> Runs:
    script = tmp_path / "fake.py"
    script.write_text(FAKE)
    return Runs(tmp_path, tool=(sys.executable, str(script)))


def programs(*names: str) -> Campaign:
    return Campaign(tuple(Program(f"/{name}.pt2", (), name) for name in names))


def wait_for(path: Path) -> str:
    deadline = time.monotonic() + 60
    while not path.exists() or not path.read_text():
        assert time.monotonic() < deadline, f"no {path}"
        time.sleep(0.05)
    return path.read_text()


def test_run_dies_with_the_process_that_has_started_it() -> None:
    start = (
        "import subprocess, sys\n"
        "words = [sys.executable, '-m', 'shrinkfx.campaign.child', 'doctor']\n"
        "pipe = subprocess.PIPE\n"
        "run = subprocess.Popen(words, stdout=pipe, start_new_session=True)\n"
        "run.stdout.readline()\n"
        "print(run.pid, flush=True)\n"
        "run.wait()\n"
    )
    command = [sys.executable, "-c", start]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        run = int(parent.stdout.readline())
        parent.kill()
    deadline = time.monotonic() + 30
    while read_process_state(run) not in ("", "Z"):
        assert time.monotonic() < deadline, "it has outlived its parent"
        time.sleep(0.05)


# --- Ray


@pytest.fixture(name="address", scope="module")
def _address() -> Iterator[str]:
    """The address of a cluster of two nodes."""
    pytest.importorskip("ray", reason="Ray is an extra, which is not installed")
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2})
    try:
        cluster.add_node(num_cpus=2)
        yield str(cluster.address)
    finally:
        cluster.shutdown()


def test_ray_runs_each_program_once(runs: Runs, address: str, tmp_path: Path) -> None:
    executor = RayExecutor(runs, address)
    done = run_campaign(programs("a", "b", "c"), tmp_path, executor, lambda *_: None)
    assert [each.status for each in done.outcomes] == [Status.REDUCED] * 3
    for name in "abc":
        lines = (tmp_path / "runs" / name / "parents").read_text().splitlines()
        assert len(lines) == 1


def test_run_whose_ray_worker_is_killed_is_continued(
    runs: Runs, address: str, tmp_path: Path
) -> None:
    executor = RayExecutor(runs, address)
    started = tmp_path / "runs/long/parents"
    executor.submit(programs("long").programs[0])
    os.kill(int(wait_for(started)), signal.SIGKILL)
    deadline = time.monotonic() + 60
    while len(started.read_text().splitlines()) < 2:
        assert time.monotonic() < deadline, "Ray has not repeated the task"
        time.sleep(0.1)
    executor.close()


def test_missing_cluster_is_named(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", ModuleType("ray"))  # is not asked
    with pytest.raises(UsageError, match="no Ray cluster has this address"):
        RayExecutor(runs, "127.0.0.1:1")


def test_missing_ray_is_named(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UsageError, match=r"pip install 'shrinkfx\[ray\]'"):
        RayExecutor(runs, "auto")
