"""Whole runs that are short of minutes: each phase leaves time for a verified repro.

Programs and scripts are fakes; what they take is on a clock of the test's.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.doubles import (
    DESCRIPTION,
    Arguments,
    asked_of,
    candidates_in,
    written,
)
from support.lies import strided

from shrinkfx.api import Reduction
from shrinkfx.errors import BudgetExhausted, Finished, UsageError
from shrinkfx.events import Event, NoteAdded
from shrinkfx.journal.journal import Journal
from shrinkfx.options.options import Options
from shrinkfx.program.candidate import Candidate
from shrinkfx.protocol.answers import Ending, Raised, Ready
from shrinkfx.protocol.requests import (
    CheckCandidate,
    CheckOriginal,
    Describe,
    Request,
    RunScript,
    Task,
    WriteCandidate,
)
from shrinkfx.report.record import EMBEDDED, NoSource
from shrinkfx.run.context import RunContext
from shrinkfx.run.folder import load_options_to_resume
from shrinkfx.run.observe import SCHEMA
from shrinkfx.run.pipeline import run
from shrinkfx.system.folders import JOURNAL
from shrinkfx.testing import chain, needs, whole

WHOLE = whole(chain("x", *(f"n{i}" for i in range(12))))
TORN = Raised("RuntimeError", "torn")
FAILS = Ending("exit", stage="run", answer=TORN)
LOG = 'File "repro.py", line 1\n    actual = compiled()\nRuntimeError: torn\n'
PASSES = Ending("exit", stage="done", log="no longer fails\n")

Fails = Callable[[Candidate], bool]


class Model:
    """A program, and what each question about it takes.

    Attributes:
        check_s: to compile and run all of it; smaller ones take less.
        run_s: to run what is compiled.
        guarded_s: to run it beside guard pages, or None where that is as fast.
        script_s: a repro of all of it.
        waited: the part of a run that went into waiting for the machine.
        asked: the tasks, with what was asked.
        described: what is said of it before anything is compiled.
    """

    ready = Ready(versions={"torch": "2"})

    def __init__(self, folder: Path, check_s: float) -> None:
        self.folder, self.check_s, self.script_s = folder, check_s, check_s
        self.run_s, self.start_s = check_s / 10, 5.0
        self.guarded_s: float | None = None
        self.waited = 0.0
        self.program: Fails = needs("n3")
        self.script: Fails = needs("n3")
        self.now = 0.0
        self.asked: list[tuple[type[Task], Arguments]] = []
        self.notes: list[str] = []
        self.context: RunContext | None = None
        self.has_bare: object = None
        self.needs_own_inputs = False
        self._packages: set[object] = set()
        self._last = WHOLE
        path = folder / "skeleton.json"
        path.write_text(json.dumps(WHOLE.skeleton.to_json()))
        self.described = replace(DESCRIPTION, skeleton=str(path))

    def ask(self, request: Request) -> Ending:
        """Answer as ``LastingServer`` does, which keeps to the minutes."""
        assert self.context is not None
        left = self.context.budget.seconds_left
        if left is not None and left <= 0:
            raise BudgetExhausted("time limit reached")
        asked = type(request.task), asked_of(request)
        self.asked.append(asked)
        ending = self._answer(*asked)
        most = min(request.timeout_s, request.wall_clock_limit_s)
        limit = most if left is None else min(left, most)
        self.now += min(ending.seconds, limit)
        if ending.seconds <= limit:
            return ending
        if left is not None and left < most:
            raise BudgetExhausted("time limit reached")
        how = "timeout" if most == request.timeout_s else "late"
        return Ending(how, stage="run", seconds=limit)

    def _answer(self, task: type[Task], asked: Arguments) -> Ending:
        if task is Describe:
            return Ending("exit", stage="done", answer=self.described, seconds=2.0)
        if task is CheckOriginal:
            seconds = self._seconds(asked)
            return replace(FAILS, seconds=seconds, waited_s=self.waited * seconds)
        if task is RunScript:
            return self._run_script(Path(asked["path"]).read_text())
        candidate = Candidate.from_json(WHOLE.skeleton, asked["candidate"])
        if task is WriteCandidate:
            self._last = candidate
            return replace(written(asked, candidate), seconds=2.0)
        ending = FAILS if self.program(candidate) else PASSES
        return replace(ending, seconds=self.check_s * part(candidate))

    def _seconds(self, asked: Arguments) -> float:
        if self.guarded_s is not None and "guard_pages" in asked:
            return self.guarded_s
        package = asked.get("package")
        is_compiled = package is not None and package in self._packages
        self._packages.add(package)
        return self.run_s if is_compiled else self.check_s

    def _run_script(self, text: str) -> Ending:
        stated = candidates_in(text)
        candidate = self._last  # embedded: the program itself, in no readable form
        if stated:
            candidate = Candidate.from_json(WHOLE.skeleton, stated[0])
        seconds = self.script_s * part(candidate)
        if not self.script(candidate) or (stated and self.needs_own_inputs):
            return replace(PASSES, seconds=seconds)
        return Ending("exit", 1, "run", answer=TORN, log=LOG, seconds=seconds)

    @contextlib.contextmanager
    def started(self, context: RunContext) -> Iterator[Any]:
        """Take the place of the worker, and of the clock at the first time."""
        if self.context is None or self.context.budget is not context.budget:
            self.context = context
            context.budget.clock = lambda: self.now
            context.budget.started = self.now
        self.now += self.start_s
        yield self

    def bare(self, context: RunContext) -> Any:
        """Take the place of the worker without a program, which starts once."""
        if self.has_bare is not context.budget:
            self.has_bare = context.budget
            self.now += self.start_s
        return self

    def tasks(self, task: type[Task]) -> list[Arguments]:
        return [asked for each, asked in self.asked if each is task]

    def questions(self) -> list[tuple[str, object, object]]:
        """List which candidates were asked about, in which form and build."""
        asked = self.tasks(CheckCandidate)
        return [
            (json.dumps(a["candidate"]), a.get("form"), a.get("build")) for a in asked
        ]

    def reduced(
        self, minutes: float | None, folder: str = "out", **options: Any
    ) -> Reduction:
        program = self.folder / "model.pt2"
        program.write_bytes(b"program")
        out = self.folder / folder
        out.mkdir(exist_ok=True)
        return self.run(Options(program, max_minutes=minutes, out=out, **options))

    def resumed(self, minutes: float) -> Reduction:
        """Go on, in another process."""
        self.context = None
        out = self.folder / "out"
        return self.run(
            load_options_to_resume(out, Options(Path(), max_minutes=minutes))
        )

    def run(self, options: Options) -> Reduction:
        assert options.out
        return run(options, options.out, self.listen)

    def listen(self, event: Event) -> None:
        if isinstance(event, NoteAdded):
            self.notes.append(event.text)


def part(candidate: Candidate) -> float:
    """Say what a candidate takes of what the whole program does."""
    return candidate.cost[0] / WHOLE.cost[0]


Made = Callable[[float], Model]


@pytest.fixture(name="model")
def _model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Made:
    made: list[Model] = []

    def make(check_s: float) -> Model:
        made.append(Model(tmp_path, check_s))
        return made[-1]

    def started(context: RunContext, *_: object) -> Any:
        return made[-1].started(context)

    monkeypatch.setattr(RunContext, "server", started)
    monkeypatch.setattr(
        RunContext, "bare_server", lambda context, *_: made[-1].bare(context)
    )
    return make


def verified(reduction: Reduction) -> bool:
    runs, failed = reduction.verified
    assert reduction.repro.exists()
    return 1 <= failed == runs


CHECKS: Sequence[float] = (1, 3, 6, 10, 15, 20, 25, 30, 40, 50, 60, 75, 90, 105)


@pytest.mark.parametrize("check_s", CHECKS)
def test_run_with_three_minutes_ends_in_four_with_a_verified_repro(
    model: Made, check_s: float
) -> None:
    world = model(check_s)
    reduction = world.reduced(3.0)
    assert verified(reduction)
    assert world.now <= 240.0
    assert reduction.exit_code == (0 if reduction.operators[1] == 1 else 4)
    assert (check_s > 10) or reduction.operators[1] == 1


def test_ample_minutes_do_not_change_the_search(model: Made) -> None:
    asked = []
    for minutes in (30.0, None):
        world = model(1.0)
        reduction = world.reduced(minutes, folder=f"out-{minutes}")
        assert reduction.operators == (12, 1)
        assert reduction.verified == (3, 3)
        asked.append([(task, a.get("candidate")) for task, a in world.asked])
    assert asked[0] == asked[1]


def test_baseline_that_uses_all_minutes_leaves_an_input_program_repro(
    model: Made,
) -> None:
    world = model(80.0)
    reduction = world.reduced(3.0)
    assert (reduction.status, reduction.exit_code) == ("stopped", 4)
    assert reduction.operators == (12, 12)
    assert verified(reduction)
    summary = json.loads((world.folder / "out" / "summary.json").read_text())
    assert "minutes and left no time for a search" in summary["stopped"]
    assert summary["verified"]["runs"] == reduction.verified[0]
    assert any("will embed the program" in note for note in world.notes)
    assert NoSource.NO_TIME in reduction.repro.read_text()
    assert "stopped early" in reduction.repro.read_text()
    assert not world.tasks(CheckCandidate)
    assert "--resume" in reduction.to_go_on


def test_minutes_that_end_in_the_first_run_give_no_result(model: Made) -> None:
    world = model(200.0)
    with pytest.raises(
        BudgetExhausted,
        match=("the program had not failed by then, so there is no result"),
    ) as e:
        world.reduced(3.0)
    assert e.value.exit_code == 4
    assert any("--max-minutes" in note for note in e.value.__notes__)
    assert world.now <= 180.0


def test_skipped_form_query_is_made_on_resume_with_more_minutes(
    model: Made,
) -> None:
    """What the first session has seen is not seen again."""
    world = model(80.0)
    world.reduced(3.0)
    world.asked.clear()
    reduction = world.resumed(60.0)
    assert reduction.operators == (12, 1)
    assert (reduction.status, reduction.verified) == ("reduced", (3, 3))
    assert not world.tasks(CheckOriginal)
    unbroken = model(80.0).reduced(60.0, folder="unbroken")
    assert reduction.candidate == unbroken.candidate
    assert reduction.summary["warnings"] != unbroken.summary["warnings"]
    (warning,) = reduction.summary["warnings"]
    assert warning.startswith("not enough time was left")


@pytest.mark.parametrize("check_s", [80.0, 27.0])
@pytest.mark.parametrize("schema", [SCHEMA - 1, None])
def test_run_started_by_another_version_is_refused_with_advice(
    model: Made, check_s: float, schema: int | None
) -> None:
    """Be it that it had seen the failure alone, or had begun to search."""
    world = model(check_s)
    world.reduced(3.0)
    with closing(Journal(world.folder / "out" / JOURNAL)) as journal:
        for name in ("unchanged", "baseline"):
            if known := journal.fact(name):
                journal.note(name, {**known, "schema": schema})
    world.asked.clear()
    with pytest.raises(UsageError) as caught:
        world.resumed(60.0)
    said = str(caught.value)
    assert (
        ": another version of shrinkfx wrote the journal: start a new run with another"
    ) in said
    assert "start a new run with another --out" in said
    assert {task for task, _ in world.asked} <= {Describe}


def test_resumed_run_reports_the_same_other_causes(model: Made) -> None:
    lie = replace(strided("n3", (1,), (2,)), within="")  # it is no suspect here
    world = model(27.0)
    world.described = replace(
        world.described, mismatches=(lie,), eager_error="no such size\nat all"
    )
    told = world.reduced(3.0).summary["warnings"]
    eager = "eager also fails on the input program: no such size"
    assert told[:2] == [f"fake-kernel mismatch: {lie.text}", eager]
    reduction = world.resumed(60.0)
    assert reduction.summary["warnings"] == told
    assert f"Warning (input program): {eager}" in reduction.repro.read_text()


def test_search_out_of_minutes_repeats_no_query_on_resume(model: Made) -> None:
    world = model(27.0)
    assert world.reduced(3.0).status == "stopped"
    *answered, _ = world.questions()  # the last one was cut short
    world.asked.clear()
    reduction = world.resumed(60.0)
    assert reduction.operators == (12, 1)
    assert reduction.verified == (3, 3)
    assert not world.tasks(CheckOriginal)
    assert len(answered) > 4
    assert not set(answered) & set(world.questions())


def test_repro_of_the_input_program_is_written_if_no_smaller_repro_fails(
    model: Made,
) -> None:
    """The minutes are spent when the result's repro turns out to pass."""
    world = model(27.0)
    world.script = lambda candidate: candidate == WHOLE
    world.script_s = 60.0
    reduction = world.reduced(3.0)
    assert verified(reduction)
    assert reduction.operators == (12, 12)
    assert reduction.status == "stopped"
    assert world.now <= 180.0 + 60.0 + 60.0
    steps = [note for note in world.notes if note.startswith("verifying an earlier")]
    assert steps == ["verifying an earlier step (12 operators)"]


def test_steps_skipped_by_a_finished_run_are_made_with_more_minutes(
    model: Made,
) -> None:
    world = model(25.0)
    world.script_s = 900.0
    first = world.reduced(3.0)
    assert (first.status, first.operators, first.verified) == (
        "reduced",
        (12, 1),
        (1, 1),
    )
    assert first.summary["repro_form"] == EMBEDDED
    assert any("--max-minutes M" in note for note in world.notes)
    for minutes in (3.0, 2.0):
        with pytest.raises(Finished, match=r"--resume .* --max-minutes M"):
            world.resumed(minutes)
    world.asked.clear()
    again = world.resumed(60.0)
    assert not world.tasks(CheckOriginal)
    asked = world.tasks(CheckCandidate)
    of_cause = "evidence", "torch_compile"
    assert [a for a in asked if not any(name in a for name in of_cause)] == []
    assert (again.status, again.candidate) == ("reduced", first.candidate)
    assert again.verified == (3, 3)
    assert again.summary["repro_form"] == "source, seeded"
    with pytest.raises(Finished) as over:
        world.resumed(90.0)
    assert not over.value.more


@pytest.mark.parametrize("check_s", [5, 20, 40, 60])
def test_guard_pages_leave_time_for_a_verified_repro(
    model: Made, check_s: float
) -> None:
    """They compile the program once more before the baseline does."""
    world = model(check_s)
    reduction = world.reduced(3.0, guard_pages="on")
    assert verified(reduction)
    assert world.now <= 240.0
