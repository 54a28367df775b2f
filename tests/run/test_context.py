"""What the phases of a run share: workers, jobs, memory and CPU time."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest
from support.doubles import context_with, request_of

from shrinkfx.check.command import Command
from shrinkfx.check.limits import usual_jobs
from shrinkfx.check.oracle import CheckClient, Limits
from shrinkfx.events import Event, Listener, NoteAdded, ignore_event
from shrinkfx.failure.signature import Kind, Signature, Stage
from shrinkfx.options.options import Options, Sweeping
from shrinkfx.protocol.answers import Ending, Ready
from shrinkfx.protocol.choices import Backend
from shrinkfx.protocol.requests import Request
from shrinkfx.report.record import ProgramSize
from shrinkfx.run import context
from shrinkfx.run.context import OVERHEAD, RunContext, Subject
from shrinkfx.run.folder import open_run_folder
from shrinkfx.run.reduction import jobs_for
from shrinkfx.system.processes import estimate_available_bytes, measure_tree_cpu_s
from shrinkfx.testing import chain, whole
from shrinkfx.versions import why_untested

# The servers of a run.


OPTIONS = Options(model=Path("m.pt2"))


@pytest.mark.parametrize("version", ["2.99.0.dev20270101+cpu", "2.13.0"])
def test_untested_torch_version_is_warned_about_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    class Newer:
        ready = Ready(versions={"torch": version})

        def __init__(self, **settings: Any) -> None:
            pass

    monkeypatch.setattr(context, "RestartingServer", Newer)
    told: list[Event] = []
    RunContext(OPTIONS, tmp_path, told.append).server()
    warnings = [each.text for each in told if isinstance(each, NoteAdded)]
    assert warnings == [*filter(None, [why_untested(version)])]
    assert len(warnings) == ("dev" in version)


def test_worker_for_scripts_starts_once_per_kind_and_ends_with_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Worker:
        def __init__(self, **settings: Any) -> None:
            self.is_open, self.deaths = True, 3

        def forget_deaths(self) -> None:
            self.deaths = 0

        def __enter__(self) -> Worker:
            return self

        def __exit__(self, *_: object) -> None:
            self.is_open = False

    monkeypatch.setattr(context, "RestartingServer", Worker)
    run = RunContext(OPTIONS, tmp_path, ignore_event)
    with run.bare_servers:
        trial = run.with_output_folder(tmp_path / "elsewhere")
        backends = [Backend.AOTI, Backend.AOTI, Backend.INTERPRETER]
        workers: list[Any] = [
            each.bare_server(b) for each in (run, trial) for b in backends
        ]
        assert len({*map(id, workers)}) == 2
        assert workers[0] is workers[3]
        assert workers[0].deaths == 0
        assert all(worker.is_open for worker in workers)
    assert not any(worker.is_open for worker in workers)


@contextmanager
def session(out: Path, options: Options = OPTIONS) -> Iterator[RunContext]:
    out.mkdir(exist_ok=True)
    with open_run_folder(options, out, lambda _: None) as context:
        yield context


@pytest.mark.processes
def test_all_cpu_time_of_a_run_is_counted_in_a_meter(
    tmp_path: Path, vices: Path
) -> None:
    before = measure_tree_cpu_s()
    with (
        session(tmp_path / "out") as context,
        context.server([sys.executable, str(vices)]) as server,
    ):
        meter = context.meters["search"]
        ending = meter.add(server.ask(request_of("spin", core=core(), cpu_s=0.5)))
        assert ending.cpu_seconds >= 0.5
        spent, used = context.cpu_seconds(), measure_tree_cpu_s() - before
        assert spent["search"] == meter.cpu_seconds
        assert spent[OVERHEAD] > 0.05  # to start a Python
        assert sum(spent.values()) == pytest.approx(used, abs=0.05)


def core() -> int:
    return min(os.sched_getaffinity(0))


def test_cpu_time_is_summed_by_part_and_a_sweep_is_one_part(
    tmp_path: Path,
) -> None:
    out = tmp_path / "out"
    with session(out, replace(OPTIONS, sweeping=Sweeping())) as context:
        context.meters["search"].cpu_seconds = 100.0
        context.meters["baseline"].cpu_seconds = 20.0
    with session(out) as context:
        context.meters["search"].cpu_seconds = 3.0
        context.journal.tick()
    with session(out, replace(OPTIONS, sweeping=Sweeping())) as context:
        assert context.cpu_seconds()["search"] == 100.0
    with session(out) as context:
        context.meters["search"].cpu_seconds = 0.5
        context.meters["verify"].cpu_seconds = 4.0
        spent = context.cpu_seconds()
    assert (spent["search"], spent["verify"], spent["baseline"]) == (3.5, 4.0, 0.0)
    assert spent["sweep"] == pytest.approx(120.0, abs=1.0)


# How many candidates a run asks about at once, and what it says of that.


GB = 1 << 30
WRONG = Signature(Kind.MISMATCH, Stage.COMPARE, "", "wrong")
ON_CPU = Ready(backend=Backend.AOTI)
ON_GPU = Ready(backend=Backend.AOTI, for_cuda=True)
INTERPRETED = Ready(backend=Backend.INTERPRETER, for_cuda=True)


class NoServer:
    def ask(self, request: Request) -> Ending:
        return Ending("exit", stage="done")


CLIENT = CheckClient(NoServer(), Limits(10.0, 8 * GB))
SIZE = ProgramSize(1, 3, 1, 0)


def subject_of(
    options: Options, folder: Path, ready: Ready, listener: Listener = ignore_event
) -> Subject:
    server = SimpleNamespace(ready=ready)
    context = context_with(server, options, folder, listener)
    return Subject(context, whole(chain("x", "relu")), SIZE, CLIENT, WRONG, 1.0)


def chosen(
    folder: Path,
    jobs: int | None = None,
    changes: Mapping[str, Any] = MappingProxyType({}),
    ready: Ready = ON_CPU,
    peak_bytes: int = 0,
) -> tuple[int, list[str]]:
    events: list[Event] = []
    options = Options(Path("m.pt2"), jobs=jobs)
    subject = replace(subject_of(options, folder, ready, events.append), **changes)
    context = subject.context
    peak = replace(Ending("exit", stage="done"), peak_rss_bytes=peak_bytes)
    context.meters["baseline"].add(peak)
    found = jobs_for(subject)
    return found, [event.text for event in events if isinstance(event, NoteAdded)]


COMMAND = {"command": Command("./fails {}")}


@pytest.mark.parametrize(
    ("changes", "ready"), [(COMMAND, ON_CPU), ({}, ON_GPU)], ids=["check", "gpu"]
)
def test_jobs_default_to_one_if_the_device_must_not_be_shared(
    tmp_path: Path, changes: Mapping[str, Any], ready: Ready
) -> None:
    assert chosen(tmp_path, None, changes, ready) == (1, [])
    assert chosen(tmp_path, 3, changes, ready) == (3, [])
    assert chosen(tmp_path, ready=INTERPRETED) == (usual_jobs(), [])


def test_flaky_failure_is_checked_one_candidate_at_a_time(tmp_path: Path) -> None:
    flaky = {"rate": 0.5}
    assert chosen(tmp_path, None, flaky) == (1, [])
    jobs, (said,) = chosen(tmp_path, 3, flaky)
    assert (jobs, "one at a time" in said) == (1, True)


def test_jobs_are_limited_by_the_free_memory(tmp_path: Path) -> None:
    jobs, (said,) = chosen(tmp_path, 4, peak_bytes=3 * GB)
    assert jobs == 2
    assert said == (
        "--jobs 4: memory suffices for 2 at a time; a check needs up to 3.2 GB"
    )
    assert chosen(tmp_path, 2, peak_bytes=3 * GB) == (2, [])


# How much memory a check may take, on machines that are only told of.


MIB = 1 << 20
GIB = 1 << 30


def machine(root: Path, cgroup: str = "") -> Path:
    """Tell of a machine with 8 GiB free."""
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/meminfo").write_text(
        f"MemTotal: {16 << 20} kB\nMemAvailable: {8 << 20} kB\n"
    )
    (root / "proc/self/cgroup").write_text(cgroup)
    return root


def group(folder: Path, names: tuple[str, str, str], *values: object) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    limit, used, cache = names
    (folder / limit).write_text(f"{values[0]}\n")
    (folder / used).write_text(f"{values[1]}\n")
    (folder / "memory.stat").write_text(f"anon 5\n{cache} {values[2]}\n")


V2 = ("memory.max", "memory.current", "inactive_file")
V1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


def test_free_memory_without_cgroups_is_the_available_memory(tmp_path: Path) -> None:
    assert estimate_available_bytes(machine(tmp_path)) == 8 * GIB
    assert estimate_available_bytes() > 0


@pytest.mark.parametrize(
    ("limit", "left"), [("max", 8 * GIB), (2 * GIB, 2 * GIB - 400 * MIB)]
)
def test_cgroup_limit_minus_unreclaimable_usage_bounds_free_memory(
    tmp_path: Path, limit: object, left: int
) -> None:
    machine(tmp_path, "0::/user/run\n")
    folder = tmp_path / "sys/fs/cgroup/user/run"
    group(folder, V2, limit, 500 * MIB, 100 * MIB)
    assert estimate_available_bytes(tmp_path) == left


def test_tightest_limit_of_nested_cgroups_applies(tmp_path: Path) -> None:
    machine(tmp_path, "0::/user/run\n")
    base = tmp_path / "sys/fs/cgroup"
    group(base / "user/run", V2, 4 * GIB, 0, 0)
    group(base / "user", V2, 1 * GIB, 0, 0)
    assert estimate_available_bytes(tmp_path) == 1 * GIB


def test_limit_at_the_cgroup_root_applies_in_a_container(tmp_path: Path) -> None:
    machine(tmp_path, "0::/as/seen/from/outside\n")
    group(tmp_path / "sys/fs/cgroup", V2, 3 * GIB, 1 * GIB, 0)
    assert estimate_available_bytes(tmp_path) == 2 * GIB


def test_limit_of_cgroups_v1_applies(tmp_path: Path) -> None:
    machine(tmp_path, "5:cpu:/a\n4:memory,hugetlb:/docker/b\n")
    group(tmp_path / "sys/fs/cgroup/memory/docker/b", V1, GIB, GIB, 64 * MIB)
    assert estimate_available_bytes(tmp_path) == 64 * MIB
