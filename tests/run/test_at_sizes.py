"""Runs at sizes, on a package that goes with the server that has compiled it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from support.doubles import asked_of, context_with

from shrinkfx.errors import WorkerError
from shrinkfx.options.options import Options
from shrinkfx.program.sizes import Space, Symbol
from shrinkfx.protocol.answers import Ending, Ready
from shrinkfx.protocol.requests import (
    CheckAtSizes,
    CompileOriginal,
    Request,
    SaveInputs,
    Task,
)
from shrinkfx.run.sweep import ExampleRunner, SweepSettings
from shrinkfx.sweep.examples import Answer

SPACE = Space((Symbol("n", 2, 4096, 6),))
SETTINGS = SweepSettings(
    content="",
    torch="",
    until="any",
    device=None,
    backend="aoti",
    inductor={},
    environment={},
    guard_pages=False,
    examples=9,
    seed=0,
    max_elements=1 << 20,
    ranges="declared",
)

PASSES = Ending("exit", stage="done")
TIMEOUT = Ending("timeout", stage="compile")


class Worker:
    """Compiles into a file; a run without that compiles too, and for too long."""

    ready = Ready()

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.package = directory / "sweep.pt2"
        self.asked: list[type[Task]] = []
        self.told: list[Mapping[str, Any]] = []
        self.compiled = PASSES
        self.in_vain = TIMEOUT
        self.dies: Callable[[], Ending | None] = lambda: None

    def ask(self, request: Request) -> Ending:
        self.asked.append(type(request.task))
        self.told.append(asked_of(request))
        if isinstance(request.task, CompileOriginal):
            if self.compiled is PASSES:
                self.package.touch()
            return self.compiled
        if ending := self.dies():
            return ending
        return PASSES if self.package.exists() else self.in_vain


@pytest.fixture(name="worker")
def _worker(tmp_path: Path) -> Worker:
    return Worker(tmp_path)


@pytest.fixture(name="runner")
def _runner(worker: Worker) -> ExampleRunner:
    context = context_with(worker, Options(Path()), worker.directory)
    return ExampleRunner(context, SPACE, SETTINGS)


def test_program_is_compiled_once_for_several_sizes(
    runner: ExampleRunner, worker: Worker
) -> None:
    assert runner.inside((3,)).answer is Answer.PASSES
    assert runner.outside((1,)).answer is Answer.PASSES
    assert worker.asked == [CompileOriginal, CheckAtSizes, CheckAtSizes]
    assert runner.compiles == 1


def test_package_removed_with_its_server_is_compiled_again(
    runner: ExampleRunner, worker: Worker
) -> None:
    runner.inside((3,))
    worker.package.unlink()
    assert runner.inside((4,)).answer is Answer.PASSES
    assert worker.asked == [CompileOriginal, CheckAtSizes] * 2
    assert runner.compiles == 2


@pytest.mark.parametrize("in_vain", [TIMEOUT, Ending("late", stage="compile")])
def test_run_is_repeated_if_its_own_compilation_did_not_finish(
    runner: ExampleRunner, worker: Worker, in_vain: Ending
) -> None:
    """The server died of it and was asked again, when there was no package."""
    worker.in_vain = in_vain
    deaths = [lambda: worker.package.unlink()]
    worker.dies = lambda: deaths.pop()() if deaths else None
    assert runner.inside((3,)).answer is Answer.PASSES
    assert worker.asked == [CompileOriginal, CheckAtSizes] * 2


def test_compile_failure_after_an_earlier_success_is_no_finding(
    runner: ExampleRunner, worker: Worker
) -> None:
    runner.inside((3,))
    worker.package.unlink()
    worker.compiled = TIMEOUT
    with pytest.raises(WorkerError, match="the program compiled before, but now:"):
        runner.inside((4,))


@pytest.mark.parametrize("name", ["unchanged", "baseline"])
def test_inputs_are_not_rewritten_once_their_reduction_has_begun(
    runner: ExampleRunner, worker: Worker, name: str
) -> None:
    path = worker.directory / "failing-1.pt"
    path.write_bytes(b"values")
    runner.save((3,), path)
    assert worker.asked == [SaveInputs]
    runner.context.journal.note(name, {"versions": {}})
    assert runner.save((3,), path) == path
    assert worker.asked == [SaveInputs]
