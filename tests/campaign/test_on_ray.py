"""A triage on a Ray cluster: the results of this machine, and deaths of its parts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from support.bugs import write_run

from shrinkfx.campaign.commands import LocalExecutor
from shrinkfx.campaign.on_ray import RayExecutor
from shrinkfx.campaign.programs import Program
from shrinkfx.campaign.runs import Campaign, Status, run_campaign
from shrinkfx.campaign.triage import Triage, resume, triage
from shrinkfx.errors import UsageError, WorkerError
from shrinkfx.journal.journal import Journal
from shrinkfx.system.processes import read_process_state

WaitFor = Callable[[Callable[[], object]], None]

pytestmark = [
    pytest.mark.processes,
    pytest.mark.filterwarnings("default"),
    pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed"),
]

FAKE = """
import ctypes, json, os, shutil, sys, time
ctypes.CDLL(None).prctl(1, 9)  # die with the process that has started it
words, here = sys.argv[1:], os.path.dirname(__file__)
is_resumed = words[0] == "--resume"
out = words[words.index("--out") + 1] if "--out" in words else words[1]
name = os.path.basename(out)
with open(f"{here}/calls", "a") as calls:
    print(name, "resumed" if is_resumed else "new", os.getpid(), os.getppid(),
          os.environ.get("OMP_NUM_THREADS"), file=calls)
os.makedirs(out, exist_ok=True)
def finish(code, **result):
    print(json.dumps({"event": "end", "elapsed": 2.0, "error": "", "result": result}))
    sys.exit(code)
if name.startswith("healthy"):
    finish(3)
if name.startswith("waits") and not is_resumed:
    shutil.copy(f"{here}/journal.sqlite", out)
    end = time.monotonic() + 600
    while time.monotonic() < end and not os.path.exists(f"{here}/go"):
        time.sleep(0.1)
if name.startswith("same") and name != "same0":
    finish(7, known_bugs=[f"{os.path.dirname(out)}/same0"])
shutil.copytree(f"{here}/result", out, dirs_exist_ok=True)
finish(0)
"""
"""A shrinkfx that reduces nothing."""


@pytest.fixture(name="cluster", scope="module")
def _cluster() -> Iterator[Any]:
    """A cluster of two nodes, for two programs at a time each."""
    with _restored_state():
        import ray
        from ray.cluster_utils import Cluster

        os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
        cluster = Cluster(True, head_node_args={"num_cpus": 4, "memory": MEMORY})
        cluster.add_node(num_cpus=4, memory=MEMORY)
        yield cluster
        ray.shutdown()
        cluster.shutdown()


@contextmanager
def _restored_state() -> Iterator[None]:
    """Restore what Ray changes in this process, which runs other tests, too."""
    environment, hook = dict(os.environ), sys.excepthook
    handler = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(environment)
        sys.excepthook = hook
        signal.signal(signal.SIGTERM, handler)


MEMORY = 64 << 30
"""What a node claims to have."""


@pytest.fixture(name="tool")
def _tool(tmp_path: Path) -> list[str]:
    write_run(tmp_path / "result")
    with closing(Journal(tmp_path / "journal.sqlite")) as journal:
        journal.note("run", {})
    (tmp_path / "fake.py").write_text(FAKE)
    (tmp_path / "calls").touch()
    return [sys.executable, str(tmp_path / "fake.py")]


def make_campaign(folder: Path, *names: str) -> Campaign:
    programs = []
    for name in names:
        (folder / name).touch()
        programs.append(Program(str(folder / name), (), name))
    return Campaign(tuple(programs), str(folder), jobs=4)


def statuses(campaign: Campaign) -> dict[str, Status]:
    return {each.program.name: each.status for each in campaign.results}


def read_calls(folder: Path) -> list[list[str]]:
    return [line.split() for line in (folder / "calls").read_text().splitlines()]


def test_cluster_has_the_results_of_this_machine(
    cluster: Any, tool: list[str], tmp_path: Path
) -> None:
    names = [f"{kind}{n}" for kind in ("same", "other", "healthy") for n in range(10)]
    campaign = make_campaign(tmp_path, *names)
    executor = RayExecutor(cluster.address, tool)
    assert executor.jobs == 4
    on_cluster = run_campaign(campaign, tmp_path / "1", lambda *_: None, executor)
    local = LocalExecutor(tool)
    here = run_campaign(campaign, tmp_path / "2", lambda *_: None, local)
    assert statuses(on_cluster) == statuses(here)
    assert len(statuses(here)) == 30
    assert {call[-1] for call in read_calls(tmp_path)} == {
        str(os.environ.get("OMP_NUM_THREADS"))
    }


def test_run_whose_process_was_killed_is_resumed(
    cluster: Any, tool: list[str], tmp_path: Path, wait_for: WaitFor
) -> None:
    def kill_worker(now: Campaign, *_: object) -> None:
        if len(now.results) == 1:
            wait_for((tmp_path / "out/runs/waits/journal.sqlite").exists)
            (worker,) = (c[3] for c in read_calls(tmp_path) if c[0] == "waits")
            os.kill(int(worker), signal.SIGKILL)

    campaign = make_campaign(tmp_path, "waits", "other")
    executor = RayExecutor(cluster.address, tool)
    done = run_campaign(campaign, tmp_path / "out", kill_worker, executor)
    assert statuses(done) == {"waits": Status.REDUCED, "other": Status.REDUCED}
    calls = [call[:2] for call in read_calls(tmp_path)]
    assert sorted(calls) == [["other", "new"], ["waits", "new"], ["waits", "resumed"]]


def test_runs_of_a_node_that_dies_are_resumed(
    cluster: Any, tool: list[str], tmp_path: Path, wait_for: WaitFor
) -> None:
    node = cluster.add_node(num_cpus=16, memory=MEMORY)

    def kill_node(now: Campaign, *_: object) -> None:
        if len(now.results) == 1:
            wait_for(lambda: len(begun()) == len(waiting))
            cluster.remove_node(node, allow_graceful=False)
            wait_for(lambda: sum(map(has_died, read_calls(tmp_path))) >= 4)
            (tmp_path / "go").touch()

    def begun() -> list[Path]:
        return [*(tmp_path / "out/runs").glob("waits*/journal.sqlite")]

    def has_died(call: list[str]) -> bool:
        return call[0] != "other" and read_process_state(int(call[3])) in ("", "Z")

    waiting = [f"waits{number}" for number in range(8)]
    campaign = replace(make_campaign(tmp_path, "other", *waiting), jobs=9)
    executor = RayExecutor(cluster.address, tool)
    done = run_campaign(campaign, tmp_path / "out", kill_node, executor)
    assert set(statuses(done).values()) == {Status.REDUCED}
    calls = [call[:2] for call in read_calls(tmp_path)]
    assert calls.count(["other", "new"]) == 1
    assert [how for _, how in calls].count("resumed") >= 4


DRIVER = """
import sys
from shrinkfx.campaign.on_ray import RayExecutor
from shrinkfx.campaign.runs import Campaign, run_campaign, save
from pathlib import Path
import json
folder = Path(sys.argv[1])
campaign = Campaign.from_json(json.loads((folder / "campaign").read_text()))
executor = RayExecutor(sys.argv[2], sys.argv[3:])
run_campaign(campaign, folder / "out", lambda now, _: save(now, folder / "out", []),
             executor)
"""


def test_triage_whose_driver_was_killed_loses_no_finished_run(
    cluster: Any, tool: list[str], tmp_path: Path, wait_for: WaitFor
) -> None:
    campaign, out = make_campaign(tmp_path, "waits", "other"), tmp_path / "out"
    (tmp_path / "campaign").write_text(json.dumps(campaign.to_json()))
    words = [sys.executable, "-c", DRIVER, str(tmp_path), cluster.address, *tool]
    with subprocess.Popen(words, stderr=subprocess.DEVNULL) as driver:
        wait_for((out / "triage.json").exists)
        wait_for((out / "runs/waits/journal.sqlite").exists)
        driver.kill()
    left = Campaign.load(out)
    assert statuses(left) == {"other": Status.REDUCED}
    ((_, _, run, _, _),) = [call for call in read_calls(tmp_path) if call[0] == "waits"]
    wait_for(lambda: not Path("/proc", run).exists())
    executor = RayExecutor(cluster.address, tool)
    done = run_campaign(left, out, lambda *_: None, executor)
    assert statuses(done) == {"waits": Status.REDUCED, "other": Status.REDUCED}
    assert len(read_calls(tmp_path)) == 3


def test_ctrl_c_kills_the_runs(
    cluster: Any, tool: list[str], tmp_path: Path, wait_for: WaitFor
) -> None:
    def press_ctrl_c(*_: object) -> None:
        wait_for(lambda: len(read_calls(tmp_path)) == 4)
        raise KeyboardInterrupt

    campaign = make_campaign(tmp_path, "other", "waits0", "waits1", "waits2")
    executor = RayExecutor(cluster.address, tool)
    with pytest.raises(KeyboardInterrupt):
        run_campaign(campaign, tmp_path / "out", press_ctrl_c, executor)
    runs = [int(call[2]) for call in read_calls(tmp_path)]
    wait_for(lambda: all(read_process_state(run) in ("", "Z") for run in runs))


def test_sigterm_is_handled_as_before(cluster: Any) -> None:
    import ray

    ray.shutdown()
    before = signal.getsignal(signal.SIGTERM)
    RayExecutor(cluster.address)
    assert signal.getsignal(signal.SIGTERM) is before


def test_node_without_a_compiler_is_not_used(
    cluster: Any, tool: list[str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    nowhere = {"PATH": "/nowhere", "CXX": ""}
    node = cluster.add_node(num_cpus=64, memory=MEMORY, env_vars=nowhere)
    names = [f"other{number}" for number in range(8)]
    campaign = make_campaign(tmp_path, *names)
    executor = RayExecutor(cluster.address, tool)
    done = run_campaign(campaign, tmp_path / "out", lambda *_: None, executor)
    assert set(statuses(done).values()) == {Status.REDUCED}
    (record,) = caplog.records
    assert record.getMessage().endswith("the node has no C++ compiler (g++)")
    cluster.remove_node(node)


def test_triage_without_a_fit_node_can_be_resumed(
    cluster: Any, tool: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "other.pt2").touch()
    out = tmp_path / "out"
    monkeypatch.chdir(tmp_path)

    def triage_on_ray() -> Triage:
        return triage(["other.pt2"], out=out, ray=cluster.address)

    with monkeypatch.context() as patch:
        patch.setattr("platform.python_version", lambda: "3.0")
        with pytest.raises(WorkerError, match=r"has Python .*, not 3.0\n.*--resume"):
            triage_on_ray()
    assert len(Campaign.load(out).pending) == 1
    monkeypatch.setattr(
        "shrinkfx.campaign.triage.LocalExecutor", partial(LocalExecutor, tool)
    )
    done = resume(out)
    assert statuses(done.campaign) == {"other": Status.REDUCED}
    assert done.campaign.jobs == 1


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("127.0.0.1:1", "no cluster there .*: ray start --head"),
        ("nowhere.invalid:6379", "cannot connect"),
    ],
)
def test_address_without_a_cluster_is_refused_before_ray_tries_it(
    address: str, reason: str
) -> None:
    with pytest.raises(UsageError, match=reason):
        RayExecutor(address)
