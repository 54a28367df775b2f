"""A check under compute-sanitizer, which is a script here that plays its part."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from shrinkfx.failure.classify import classify_ending
from shrinkfx.failure.signature import MEMORY_FAULT, Kind, Stage
from shrinkfx.failure.verdict import Observation
from shrinkfx.protocol.answers import Answer, Done
from shrinkfx.protocol.choices import Backend, Guard
from shrinkfx.protocol.requests import (
    CheckOptions,
    CheckOriginal,
    Describe,
    Request,
    Setup,
    Task,
)
from shrinkfx.worker.child_main import JOB, choose_work
from shrinkfx.worker.forkserver.supervise import Note, supervise
from shrinkfx.worker.model import Program

pytestmark = pytest.mark.processes

LOOKS_ON = """\
#!/bin/sh
echo "asked: $*"
cat <<'END'
========= COMPUTE-SANITIZER
========= Invalid __global__ write of size 4 bytes
=========     at triton_poi_fused_add_0+0x1b0 in c7x2.py:33
=========     by thread (96,0,0) in block (6,0,0)
=========     Access at 0x79fd33fd0980 is out of bounds
========= ERROR SUMMARY: 1 error
END
for folder; do :; done
echo run > "$folder/stage"
exit 1
"""
REFUSES = """\
#!/bin/sh
echo "========= Error: Device not supported. See the documentation"
exit 1
"""


@dataclass
class OnGpu:
    """A worker that would answer itself, if it was asked here."""

    setup: Setup
    program: Program | None = None
    on_gpu: bool = True

    def settle(self, request: Request) -> None:
        pass

    def perform(self, request: Request, note: Note, folder: Path) -> Answer:
        note("done")
        return Done()

    def compile_for_sanitizer(
        self, request: Request, note: Note, folder: Path
    ) -> Request:
        return replace(request, options=replace(request.options, package="early.pt2"))


def run_check(folder: Path, guard: Guard, task: Task | None = None) -> Observation:
    """Answer as a worker on a GPU does."""
    worker = OnGpu(Setup(directory=str(folder), backend=Backend.AOTI))
    options = CheckOptions(guard_pages=guard)
    request = Request(task or CheckOriginal(), options, timeout_s=60.0)
    place = folder / "child"
    place.mkdir()
    return classify_ending(supervise(choose_work(worker, request), request, place))


@pytest.mark.parametrize("tool", [Guard.MEMCHECK, Guard.INITCHECK, Guard.RACECHECK])
def test_check_runs_a_new_python_under_compute_sanitizer(
    tool: Guard, tmp_path: Path, install_tool: Callable[[str, str], Path]
) -> None:
    install_tool("compute-sanitizer", LOOKS_ON)
    seen = run_check(tmp_path, tool)
    assert f"asked: --tool={tool} --target-processes=application-only" in seen.log
    assert ("--leak-check=no" in seen.log) == (tool is Guard.MEMCHECK)
    assert f"-P -m shrinkfx.worker --once {tmp_path / 'child'}" in seen.log
    assert "early.pt2" in (tmp_path / "child" / JOB).read_text()
    assert seen.signature is not None
    known = seen.signature.kind, seen.signature.stage, seen.signature.detail
    assert known == (Kind.IMA, Stage.RUN, MEMORY_FAULT)
    assert "triton_poi_fused_add_0, line 33" in seen.signature.text


def test_device_that_compute_sanitizer_refuses_is_reported(
    tmp_path: Path, install_tool: Callable[[str, str], Path]
) -> None:
    install_tool("compute-sanitizer", REFUSES)
    seen = run_check(tmp_path, Guard.MEMCHECK)
    assert seen.signature is None
    assert seen.unresolved.startswith("compute-sanitizer refuses: Device not supported")


def test_missing_compute_sanitizer_is_reported_with_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    seen = run_check(tmp_path, Guard.MEMCHECK)
    assert seen.signature is None
    assert "pip install nvidia-cuda-sanitizer-api" in seen.unresolved


def test_only_tasks_that_run_the_program_use_compute_sanitizer(
    tmp_path: Path, install_tool: Callable[[str, str], Path]
) -> None:
    install_tool("compute-sanitizer", LOOKS_ON)
    assert "asked:" not in run_check(tmp_path, Guard.MEMCHECK, Describe()).log
