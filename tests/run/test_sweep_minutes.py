"""A sweep whose minutes are over: what it has found is written all the same.

The program is a fake that is wrong from 33 on; each question takes a second of a clock
of the test's.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shrinkfx.errors import BudgetExhausted
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
from shrinkfx.run.sweep import Swept, run_sweep

SPACE = Space((Symbol("n", 2, 64, 6),))
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
                return Ending("exit", answer=OpenSizes(SPACE))
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
