"""The search phase: what is asked after the smallest program has been found."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from support.lies import strided

from shrinkfx.check.oracle import CheckClient, Limits
from shrinkfx.errors import StorageError, WorkerError
from shrinkfx.events import Event, NoteAdded
from shrinkfx.failure.signature import Kind, Signature, Stage
from shrinkfx.journal.journal import Journal
from shrinkfx.options.options import Options
from shrinkfx.program.candidate import Candidate
from shrinkfx.protocol.answers import Checked, Difference, Ending, Raised
from shrinkfx.protocol.choices import Build, Step
from shrinkfx.protocol.operators import Misbehavior, OperatorFinding
from shrinkfx.protocol.requests import CheckCandidate, CheckOptions, Request
from shrinkfx.report.record import OtherCauses, ProgramSize
from shrinkfx.run.context import RunContext, Subject
from shrinkfx.run.reduction import (
    SearchResult,
    check_rest,
    reduce,
    run_search_stages,
)
from shrinkfx.testing import Nodes, chain, operator, skeleton, whole

NO_OTHERS = OtherCauses()
TESTED = (
    "testing the rest of the input program, without the operators of the reduced "
    "program: their results become inputs"
)
PASSES = "the rest of the input program{} passes"
WHOLE = whole(chain("x", "relu", "tanh", "cos", "sin", "exp"))
DIFFERS = Checked(Difference("values", "wrong"))
WRONG = Signature(Kind.MISMATCH, Stage.COMPARE, "", "wrong")
RAISED = Raised("ValueError", "no such thing")
RAISES = Signature(Kind.EXCEPTION, Stage.RUN, "ValueError: no such thing")

Fails = Callable[[Candidate, int], bool]


class Worker:
    """Answers from a predicate over candidates and calls."""

    def __init__(
        self, fails: Fails, ending: Ending, program: Candidate = WHOLE
    ) -> None:
        self._fails = fails
        self._ending = ending
        self._skeleton = program.skeleton

    def ask(self, request: Request) -> Ending:
        assert isinstance(request.task, CheckCandidate)
        candidate = Candidate.from_json(self._skeleton, request.task.candidate)
        if self._fails(candidate, request.options.calls):
            return self._ending
        return Ending("exit", stage="done")


def reduced(
    folder: Path,
    fails: Fails,
    target: Signature = WRONG,
    calls: int = 1,
    check_s: float = 0.0,
    program: Candidate = WHOLE,
    causes: OtherCauses = NO_OTHERS,
) -> tuple[SearchResult, list[str]]:
    stage, answer = ("run", RAISED) if target is RAISES else ("done", DIFFERS)
    worker = Worker(fails, Ending("exit", stage=stage, answer=answer), program)
    client = CheckClient(worker, Limits(10.0, 1 << 30), CheckOptions(calls=calls))
    events: list[Event] = []
    options = Options(Path("model.pt2"), max_minutes=3.0)
    context = RunContext(options, folder, events.append)
    context.budget.keep(check_s)
    size = ProgramSize(program.cost[0], 7, 1, 0)
    subject = Subject(context, program, size, client, target, 1.0, other_causes=causes)
    found = reduce(subject)
    check_rest(subject, found)
    return found, [event.text for event in events if isinstance(event, NoteAdded)]


def has(*names: str) -> Callable[[Candidate], bool]:
    return lambda candidate: candidate.keep >= set(names)


def test_mismatch_is_confirmed_by_the_program_without_the_result_passing(
    tmp_path: Path,
) -> None:
    needed = has("cos")
    found, notes = reduced(tmp_path, lambda candidate, calls: needed(candidate))
    assert found.reducer.best.keep == {"cos"}
    assert found.rest == "passed"
    assert notes == [TESTED, PASSES.format("")]
    assert found.collect_other_failures(WRONG) == []


LIES = whole(chain("x", "lies", "relu", "lies_1", "cos"))


def calls(candidate: Candidate, name: str) -> bool:
    targets = (candidate.target(operator) for operator in candidate.operators)
    return f"aten.{name}.default" in targets


ITS_LIE = strided("lies", (1, 2), (3, 1))
ITS_WRITE = OperatorFinding(
    "aten.lies.default", Misbehavior.WRITES, "lies", argument="x"
)


@pytest.mark.parametrize(
    "causes", [OtherCauses(mismatches=(ITS_LIE,)), OtherCauses(examined=(ITS_WRITE,))]
)
def test_second_call_of_a_mismatching_operator_is_no_second_failure(
    causes: OtherCauses, tmp_path: Path
) -> None:
    found, notes = reduced(
        tmp_path,
        lambda c, _: calls(c, "lies"),
        program=LIES,
        causes=causes,
    )
    assert len(found.reducer.best.keep) == 1
    assert found.rest == "passed"
    also = ", without any call of aten.lies.default,"
    assert notes == [TESTED, PASSES.format(also)]
    assert found.collect_other_failures(WRONG) == []


CAT = operator("relu y z", target="aten.cat.default")


@pytest.mark.parametrize(
    "program",
    [
        {"x": "", "relu": "x", "y": "", "z": "", "cat": CAT, "exp": "cat"},
        {"relu": "", "y": "", "z": "", "cat": CAT},
    ],
)
def test_kind_of_difference_may_change_while_operators_are_removed(
    program: Nodes, tmp_path: Path
) -> None:
    """Merged, the inputs of one that is wrong show another fault of it."""
    start = whole(skeleton(program))
    original = start.cost[0]

    class Worker:
        def ask(self, request: Request) -> Ending:
            assert isinstance(request.task, CheckCandidate)
            candidate = Candidate.from_json(start.skeleton, request.task.candidate)
            what = "values" if candidate.cost[0] == original else "dtype"
            if len(candidate.inputs) < 3:
                what = "shape"
            fails = Checked(Difference(what, f"{what} differ"))
            answer = fails if "cat" in candidate.keep else None
            return Ending("exit", stage="done", answer=answer)

    client = CheckClient(Worker(), Limits(10.0, 1 << 30))
    options = Options(Path("model.pt2"), max_minutes=3.0)
    context = RunContext(options, tmp_path, lambda event: None)
    target = replace(WRONG, differs="values")
    subject = Subject(
        context, start, ProgramSize(original, 4, 1, 0), client, target, 1.0
    )
    found = reduce(subject)
    assert found.reducer.best.keep == {"cat"}
    assert len(found.reducer.best.inputs) == 3
    shown = found.reducer.asker.find_signature(found.reducer.best)
    assert shown is not None
    assert shown.differs == ("dtype" if original > 1 else "values")
    assert {caught.text for caught in found.collect_other_failures(target)} == {
        "shape differ"
    }


@pytest.mark.parametrize(("needed", "left"), [(3, 3), (2, 2), (1, 1)])
def test_result_is_called_the_minimal_number_of_times(
    tmp_path: Path, needed: int, left: int
) -> None:
    """The original needs three calls; what is left of it may need fewer."""

    def fails(candidate: Candidate, calls: int) -> bool:
        enough = needed if len(candidate.keep) == 1 else 3
        return has("cos")(candidate) and calls >= enough

    found, _ = reduced(tmp_path, fails, calls=3)
    assert found.calls == left


class TwoBuilds:
    """Needs cos to fail, and tanh too where it is built as AOTInductor does it."""

    def __init__(self) -> None:
        self.asked: list[tuple[Candidate, CheckOptions]] = []

    def ask(self, request: Request) -> Ending:
        assert isinstance(request.task, CheckCandidate)
        candidate = Candidate.from_json(WHOLE.skeleton, request.task.candidate)
        self.asked.append((candidate, request.options))
        stock = request.options.build is Build.STOCK
        fails = has("cos", "tanh") if stock else has("cos")
        if fails(candidate):
            return Ending("exit", stage="run", answer=RAISED)
        return Ending("exit", stage="done")


def test_verdict_of_the_stock_build_decides_in_later_search_stages(
    tmp_path: Path,
) -> None:
    worker = TwoBuilds()
    options = CheckOptions(build=Build.FAST, only=Step.KERNEL)
    client = CheckClient(worker, Limits(10.0, 1 << 30), options)
    path = tmp_path / "journal.sqlite"
    context = RunContext(
        Options(Path("m.pt2")), tmp_path, lambda event: None, Journal(path)
    )
    subject = Subject(context, WHOLE, ProgramSize(5, 7, 1, 0), client, RAISES, 1.0)
    found = reduce(subject)
    assert found.reducer.best.keep == {"cos"}
    assert {options.build for _, options in worker.asked} == {Build.FAST}
    run_search_stages(subject, found)
    assert found.reducer.best.keep == {"cos", "tanh"}
    assert found.reducer.asker.build == Build.STOCK
    asked = [(c.digest, o.build, o.only is not None) for c, o in worker.asked]
    first = [build for _, build, _ in asked].index(Build.STOCK)
    assert first > 2
    assert all(only == (build == Build.FAST) for _, build, only in asked)
    with closing(sqlite3.connect(path)) as db:
        rows = db.execute("SELECT digest, build FROM checks ORDER BY number").fetchall()
    assert rows == [(digest, build) for digest, build, _ in asked]


def damage(path: Path) -> None:
    """Take the journal's table away from under it."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("DROP TABLE checks")


def overwrite(path: Path) -> None:
    for file in path.parent.glob(f"{path.name}*"):
        file.write_bytes(b"noise" * 20_000)


@pytest.mark.parametrize("ruin", [damage, overwrite])
def test_journal_failure_ends_the_search_with_the_best_candidate(
    tmp_path: Path, ruin: Callable[[Path], None]
) -> None:
    path, asked = tmp_path / "journal.sqlite", []

    def fails(candidate: Candidate, calls: int) -> bool:
        asked.append(candidate)
        if len(asked) == 4:
            ruin(path)
        return has("cos")(candidate)

    worker = Worker(fails, Ending("exit", stage="run", answer=RAISED))
    client = CheckClient(worker, Limits(10.0, 1 << 30))
    context = RunContext(
        Options(Path("m.pt2")), tmp_path, lambda event: None, Journal(path)
    )
    size = ProgramSize(5, 7, 1, 0)
    found = reduce(Subject(context, WHOLE, size, client, RAISES, 1.0))
    assert str(path) in found.stopped
    assert not context.out_of_budget
    failing = [c for c in asked[:4] if has("cos")(c)]
    assert found.reducer.best.cost <= min(c.cost for c in failing[:-1])
    assert found.reducer.best.cost < WHOLE.cost
    assert len(asked) == 4


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        (WorkerError("died", "its log"), "died"),
        (
            StorageError("/tmp", "full", "free some space"),
            "/tmp: full; free some space",
        ),
        (OSError(28, "x"), "[Errno 28] x"),
    ],
)
def test_error_that_ends_the_search_leaves_the_best_candidate(
    tmp_path: Path, reason: Exception, told: str
) -> None:
    asked = []

    def fails(candidate: Candidate, calls: int) -> bool:
        asked.append(candidate)
        if len(asked) == 4:
            raise reason
        return has("cos")(candidate)

    found, _ = reduced(tmp_path, fails, RAISES)
    assert found.stopped == told
    failing = [c for c in asked[:3] if has("cos")(c)]
    assert found.reducer.best == failing[-1]
