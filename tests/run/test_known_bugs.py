"""Which known bugs a program has, according to checks of parts of the program."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.bugs import SIN, WRONG, write_run

from shrinkfx.check.oracle import CheckClient, Limits
from shrinkfx.errors import KnownFailure
from shrinkfx.events import ignore_event
from shrinkfx.failure.signature import Kind, Signature, Stage
from shrinkfx.findings.known_bugs import KnownBug
from shrinkfx.findings.pattern import Pattern
from shrinkfx.options.options import Options
from shrinkfx.program.candidate import Candidate
from shrinkfx.protocol.answers import Checked, Difference, Ending
from shrinkfx.protocol.choices import Step
from shrinkfx.protocol.requests import CheckCandidate, CheckOptions, Request
from shrinkfx.report.record import ProgramSize
from shrinkfx.run.context import RunContext, Subject
from shrinkfx.run.known_bugs import Unknown, leave_out_known_bugs
from shrinkfx.testing import chain, whole

PROGRAM = whole(chain("x", "relu", "cos", "tanh", "sin", "exp"))

Fails = Callable[[set[str]], bool | str]
"""Returns how the result of operators is wrong: ``nan``, or True for its values."""


class Worker:
    """Answers from a predicate over the kept operators, and counts the checks.

    Args:
        fails: how operators fail in the first build step.
        fails_later: how they fail after it.
    """

    def __init__(self, fails: Fails, fails_later: Fails = lambda _: False) -> None:
        self._fails, self._fails_later = fails, fails_later
        self.checks: list[set[str]] = []

    def ask(self, request: Request) -> Ending:
        assert isinstance(request.task, CheckCandidate)
        candidate = Candidate.from_json(PROGRAM.skeleton, request.task.candidate)
        self.checks.append(kept := {*candidate.keep})
        later = request.options.only is None and self._fails_later(kept)
        if fails := self._fails(kept) or later:
            what = "values" if fails is True else fails
            answer = Checked(Difference(what, "wrong"))
            return Ending("exit", stage="done", answer=answer)
        return Ending("exit", stage="done")


@dataclass(frozen=True)
class Found:
    """What known bugs leave of the program.

    Attributes:
        known: the folders of the known bugs because of which it fails; None if it also
            fails for another reason.
        rest: the operators that remain to be reduced.
        kind: how they fail.
        checks: the operators of each checked candidate.
    """

    known: list[Path] | None
    rest: set[str]
    checks: list[set[str]]
    notes: tuple[str, ...] = ()
    kind: str = ""


def make_program(
    worker: Worker,
    known: Path,
    max_checks: int | None = None,
    rate: float = 1.0,
    until: str | None = None,
    target: Signature = WRONG,
) -> Subject:
    client = CheckClient(worker, Limits(10.0, 1 << 30), CheckOptions())
    model, folders = Path("model.pt2"), (str(known),)
    options = Options(model, known=folders, max_checks=max_checks, until=until)
    context = RunContext(options, known, ignore_event)
    size = ProgramSize(PROGRAM.cost[0], 7, 1, 0)
    return Subject(context, PROGRAM, size, client, target, rate)


def find(known: Path, fails: Fails, **settings: Any) -> Found:
    """Leave out the known bugs of a program (``make_program``)."""
    worker = Worker(fails)
    program = make_program(worker, known, **settings)
    context = program.context
    try:
        unknown = leave_out_known_bugs(program)
    except KnownFailure as error:
        return Found([*map(Path, error.folders)], set(), worker.checks)
    assert leave_out_known_bugs(program) == unknown
    assert context.budget.checks == len(worker.checks)
    rest = unknown.in_program(program)
    assert (rest.whole, rest.target) == (unknown.whole, unknown.target)
    kept, kind = {*rest.whole.keep}, rest.target.kind
    return Found(None, kept, worker.checks, unknown.notes, kind)


def test_bug_is_known_if_its_operators_alone_fail_and_the_rest_passes(
    tmp_path: Path,
) -> None:
    folder = write_run(tmp_path / "run")
    found = find(tmp_path, lambda kept: "cos" in kept)
    assert found.known == [folder]
    assert found.checks == [{"cos"}, {"relu", "tanh", "sin", "exp"}]


def test_what_fails_without_a_known_bug_remains_to_be_reduced(tmp_path: Path) -> None:
    write_run(tmp_path / "run")
    found = find(tmp_path, lambda kept: bool({"cos", "sin"} & kept))
    assert found.known is None
    assert found.rest == {"relu", "tanh", "sin", "exp"}
    assert len(found.checks) == 2
    (note,) = found.notes
    assert "it still fails in the same way, so shrinkfx reduces the rest" in note


NAN = Signature(Kind.NAN, Stage.COMPARE)


def nan_hides_values(kept: set[str]) -> bool | str:
    """Fail as with two bugs: that of ``cos`` hides that of ``sin``."""
    return "nan" if "cos" in kept else "sin" in kept


def test_second_bug_that_fails_in_another_way_remains_to_be_reduced(
    tmp_path: Path,
) -> None:
    write_run(tmp_path / "run", signature=NAN)
    found = find(tmp_path, nan_hides_values, target=NAN)
    assert (found.known, found.kind) == (None, "mismatch")
    assert found.rest == {"relu", "tanh", "sin", "exp"}
    (note,) = found.notes
    assert "still fails in another way (mismatch in compare: wrong)" in note


def test_second_bug_may_be_known_as_well(tmp_path: Path) -> None:
    second = write_run(tmp_path / "a", SIN)
    first = write_run(tmp_path / "b", signature=NAN)
    found = find(tmp_path, nan_hides_values, target=NAN)
    assert found.known == [first, second]


def test_failure_that_was_not_requested_is_not_reduced(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", signature=NAN)
    found = find(tmp_path, nan_hides_values, until="nan", target=NAN)
    assert found.known == [folder]


def test_all_bugs_of_a_program_may_be_known(tmp_path: Path) -> None:
    known = [write_run(tmp_path / "a"), write_run(tmp_path / "b", SIN)]
    found = find(tmp_path, lambda kept: bool({"cos", "sin"} & kept))
    assert found.known == known
    assert found.checks[2:] == [{"sin"}, {"relu", "tanh", "exp"}]


def test_operators_that_do_not_fail_alone_are_another_bug(tmp_path: Path) -> None:
    write_run(tmp_path / "run")
    found = find(tmp_path, {"cos", "tanh"}.issubset)
    assert found.known is None
    assert found.rest == PROGRAM.keep
    assert found.checks == [{"cos"}]


def test_rest_is_checked_beyond_the_step_at_which_the_program_fails(
    tmp_path: Path,
) -> None:
    write_run(tmp_path / "run")
    worker = Worker(lambda kept: "cos" in kept, fails_later=lambda kept: "sin" in kept)
    program = make_program(worker, tmp_path).with_options(only=Step.LOWERING)
    unknown = leave_out_known_bugs(program)
    assert {*unknown.whole.keep} == {"relu", "tanh", "sin", "exp"}


def test_same_message_from_other_operators_is_another_target(tmp_path: Path) -> None:
    first, second = (
        Signature(Kind.ASSERT, Stage.RUN, "index out of bounds", operators=(name,))
        for name in ("aten.cos", "aten.sin")
    )
    program = make_program(Worker(lambda _: True), tmp_path, target=first)
    bug = KnownBug.read(write_run(tmp_path / "run"))
    rest = Unknown(PROGRAM, first).without(bug, PROGRAM, second).in_program(program)
    assert rest.target.admits(second)


def test_bug_with_another_failure_or_without_its_operators_costs_no_check(
    tmp_path: Path,
) -> None:
    asserts = Signature(Kind.ASSERT, Stage.RUN, "index out of bounds")
    write_run(tmp_path / "a", signature=asserts)
    write_run(tmp_path / "b", Pattern(("aten.erf.default",), ()))
    found = find(tmp_path, lambda kept: "cos" in kept)
    assert found.known is None
    assert found.checks == []


def test_each_known_bug_is_tried(tmp_path: Path) -> None:
    write_run(tmp_path / "a")
    folder = write_run(tmp_path / "b", SIN)
    assert find(tmp_path, lambda kept: "sin" in kept).known == [folder]


def test_program_that_is_nothing_but_the_bug_needs_no_check(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", Pattern.of_candidate(PROGRAM))
    found = find(tmp_path, lambda kept: True)
    assert found.known == [folder]
    assert found.checks == []


def test_unreadable_folder_is_named_and_skipped(tmp_path: Path) -> None:
    write_run(tmp_path / "a", verified=(3, 1))
    (tmp_path / "b").mkdir()
    found = find(tmp_path, lambda kept: "cos" in kept)
    assert found.known is None
    skipped = f"--known: {tmp_path / 'a'} is skipped: its repro does not fail in every"
    assert found.notes == (f"{skipped} run",)


def test_result_of_the_run_itself_is_no_known_bug(tmp_path: Path) -> None:
    own = write_run(tmp_path / "run")
    assert find(own, lambda kept: "cos" in kept).checks == []


def test_folder_that_was_removed_has_no_bugs(tmp_path: Path) -> None:
    assert find(tmp_path / "gone", lambda kept: True).checks == []


def test_exhausted_budget_leaves_the_bug_unknown(tmp_path: Path) -> None:
    write_run(tmp_path / "run")
    found = find(tmp_path, lambda kept: "cos" in kept, max_checks=1)
    assert found.known is None
    assert found.notes[0].startswith("not every known bug was tested: ")


def test_flaky_failure_is_tested_in_several_runs(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    found = find(tmp_path, lambda kept: "cos" in kept, rate=0.5)
    assert found.known == [folder]
    assert len(found.checks) > 2
