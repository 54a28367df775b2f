"""The servers of a run."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.doubles import request_of

from shrinkfx.events import Event, NoteAdded
from shrinkfx.options.options import Options, Sweeping
from shrinkfx.protocol.answers import Ready
from shrinkfx.run import context
from shrinkfx.run.context import OVERHEAD, RunContext
from shrinkfx.run.folder import open_run_folder
from shrinkfx.system.used import measure_tree_cpu_s
from shrinkfx.versions import why_untested

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
