"""The sweep of a run: examples, minutes and findings."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.doubles import asked_of, context_with

from shrinkfx.errors import BudgetExhausted, WorkerError
from shrinkfx.events import ignore_event
from shrinkfx.options.options import Options, Sweeping
from shrinkfx.program.sizes import Space, Symbol
from shrinkfx.protocol.answers import Checked, Difference, Ending, OpenSizes, Ready
from shrinkfx.protocol.requests import (
    CheckAtSizes,
    CompileOriginal,
    Describe,
    FindSpace,
    Request,
    SaveInputs,
    Task,
)
from shrinkfx.run.context import RunContext
from shrinkfx.run.sweep import ExampleRunner, SweepSettings, Swept, run_sweep
from shrinkfx.sweep.examples import Answer

# Runs at sizes, on a package that goes with the server that has compiled it.


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


# A sweep whose minutes are over: what it has found is written all the same.


SPACE_MINUTES = Space((Symbol("n", 2, 64, 6),))
WRONG = Checked(Difference("values", "wrong"))


class Program:
    """Answers as ``LastingServer`` does, which keeps to the minutes."""

    ready = Ready(versions={"torch": "2"})

    def __init__(self, folder: Path) -> None:
        self.directory = folder / "server"
        self.directory.mkdir(parents=True)
        self.now = 0.0
        self.saved_at: list[float] = []
        self.described = False
        self.context: RunContext | None = None

    @contextlib.contextmanager
    def started(self, context: RunContext) -> Iterator[Any]:
        self.context = context
        context.budget.clock = lambda: self.now
        context.budget.started = self.now
        yield self

    def ask(self, request: Request) -> Ending:
        assert self.context is not None
        left = self.context.budget.seconds_left
        if left is not None and left < 1.0:
            self.now += left
            raise BudgetExhausted("time limit reached")
        self.now += 1.0
        return self._answer(request.task)

    def _answer(self, task: Task) -> Ending:
        match task:
            case FindSpace():
                return Ending("exit", answer=OpenSizes(SPACE_MINUTES))
            case CompileOriginal():
                (self.directory / "sweep.pt2").touch()
            case Describe():
                self.described = True
            case SaveInputs():
                self.saved_at.append(self.now)
                Path(task.path).write_bytes(b"inputs")
            case CheckAtSizes() if task.sizes["n"] >= 33:
                return Ending("exit", stage="done", answer=WRONG)
        return Ending("exit", stage="done")


Sweep = Callable[..., tuple[Swept, Program]]


@pytest.fixture(name="sweep")
def _sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sweep:
    model = tmp_path / "model.pt2"
    model.write_bytes(b"program")

    def sweep(name: str, seconds: float | None, **asked: str) -> tuple[Swept, Program]:
        program = Program(tmp_path / name)
        monkeypatch.setattr(
            RunContext, "server", lambda context, *_: program.started(context)
        )
        minutes = None if seconds is None else seconds / 60
        out = tmp_path / name
        options = Options(model, out=out, max_minutes=minutes, sweeping=Sweeping(20))
        options = replace(options, **asked)  # type: ignore[arg-type]
        return run_sweep(options, out, ignore_event), program

    return sweep


def test_findings_of_a_sweep_out_of_minutes_are_written(sweep: Sweep) -> None:
    swept, program = sweep("stopped", 12.0)
    assert (swept.status, swept.exit_code) == ("stopped", 4)
    report = json.loads((swept.folder / "sweep.json").read_text())
    assert (report["status"], report["stopped"]) == ("stopped", swept.report["stopped"])
    assert "minutes reached" in report["stopped"]
    (found,) = report["findings"]
    assert found["sizes"]["n"] >= 33
    assert (swept.folder / found["failing_inputs"]).read_bytes() == b"inputs"
    assert swept.to_go_on == f"shrinkfx --resume {swept.folder} --max-minutes M"
    assert program.saved_at
    assert min(program.saved_at) >= 12.0


def test_sweep_ends_with_the_command_to_reduce_its_finding(
    sweep: Sweep, tmp_path: Path
) -> None:
    swept, program = sweep("whole", None)
    assert swept.target is None
    failing = tmp_path / "whole" / "failing-1.pt"
    asked = f"--inputs {failing} --until mismatch"
    assert swept.to_go_on == f"shrinkfx {tmp_path / 'model.pt2'} {asked}"
    assert program.described
