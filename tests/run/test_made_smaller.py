"""After the operators: what is left is made smaller, and verified as a listing."""

from __future__ import annotations

import math
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.fake_fitter import FakeFitter
from support.lies import strided

from shrinkfx.check.oracle import CheckClient, Limits
from shrinkfx.events import Event, NoteAdded, StepTaken
from shrinkfx.failure.classify import classify_ending
from shrinkfx.failure.signature import Kind, Signature, Stage
from shrinkfx.journal.journal import Journal
from shrinkfx.options.options import Options
from shrinkfx.program.candidate import Candidate
from shrinkfx.program.edits import Rewrite
from shrinkfx.program.listing.changes import Refill
from shrinkfx.program.listing.printed_program import (
    MINIMAL,
    PLAINEST,
    PrintedProgram,
    Run,
)
from shrinkfx.program.listing.tensor_specs import Saved, Seeded, TensorSpec
from shrinkfx.protocol.answers import (
    Checked,
    Difference,
    Ending,
    Fitted,
    Invalid,
    Listed,
    Raised,
    Typed,
)
from shrinkfx.protocol.choices import CandidateForm
from shrinkfx.protocol.operators import Misbehavior, OperatorFinding
from shrinkfx.protocol.requests import (
    CheckCandidate,
    CheckOptions,
    FitRewrites,
    ListCandidate,
    Request,
)
from shrinkfx.report.record import OtherCauses, ProgramSize
from shrinkfx.run import simplification as making_smaller
from shrinkfx.run.context import RunContext, Subject
from shrinkfx.run.reduction import SearchResult, reduce
from shrinkfx.run.simplification import (
    VALUES,
    drop_listing,
    record_minimal_kinds,
    reduce_listing,
)
from shrinkfx.run.verification import with_short_names
from shrinkfx.testing import chain, listing, whole

WHOLE = whole(chain("x", "relu", "tanh", "cos"))
WRONG = Signature(Kind.MISMATCH, Stage.COMPARE, "", "wrong")
DIFFERS = Ending("exit", stage="done", answer=Checked(Difference("values", "wrong")))
SHAPE = Ending("exit", stage="done", answer=Checked(Difference("shape", "shape 1")))
PASSES = Ending("exit", stage="done")
REFUSES = Ending("exit", stage="compile", answer=Raised("ValueError", "no such thing"))
SAVED = TensorSpec((4, 6), "float32", Saved("example_x"))
LISTED = listing("tanh = torch.ops.aten.tanh.default(x)\nreturn tanh", x=SAVED)
DRAWN = Rewrite((Refill("x", Seeded("randn")),))

Fails = Callable[[PrintedProgram], bool | Ending]


class Worker:
    """Writes candidates down as one listing, and answers of listings as told.

    Attributes:
        compiled: listings, in the order in which they were asked about.
        refuses: the task that it has no answer to.
    """

    def __init__(
        self,
        fails: Fails,
        refuses: type | None = None,
        misfit: str = "",
        failing: Ending = DIFFERS,
        listed: PrintedProgram = LISTED,
    ) -> None:
        self._fails, self._misfit, self._failing = fails, misfit, failing
        self._listed = listed
        self.refuses = refuses
        self.compiled: list[PrintedProgram] = []
        self.options: list[CheckOptions] = []

    def ask(self, request: Request) -> Ending:
        task: Any = request.task
        if isinstance(task, self.refuses or ()):
            return Ending("exit", answer=Invalid("no such thing here"))
        candidate = Candidate.from_json(WHOLE.skeleton, task.candidate)
        match task:
            case ListCandidate():
                Path(task.data).write_bytes(b"values")
                return Ending("exit", answer=Listed(self._listed, DRAWN, task.data))
            case FitRewrites():
                fitted = _fitted(candidate, task.rewrites)
                return Ending("exit", answer=replace(fitted, misfit=self._misfit))
        assert isinstance(task, CheckCandidate)
        if candidate.listing is None:
            return self._failing if "tanh" in candidate.keep else PASSES
        self.options.append(request.options)
        self.compiled.append(candidate.listing)
        fails = self._fails(candidate.listing)
        if isinstance(fails, Ending):
            return fails
        return self._failing if fails else PASSES


def _fitted(candidate: Candidate, rewrites: tuple[Rewrite, ...]) -> Fitted:
    fitter = FakeFitter()
    types = fitter.types(candidate).items()
    known = (
        Typed(*where, told.dtype, told.shape, told.stride, told.device)
        for where, told in types
    )
    return Fitted(tuple(fitter.fit(candidate, rewrites)), tuple(known))


def reduced(
    folder: Path,
    worker: Worker,
    journal: Journal | None = None,
    *,
    target: Signature = WRONG,
    causes: OtherCauses | None = None,
    **options: Any,
) -> tuple[SearchResult, list[Event]]:
    client = CheckClient(worker, Limits(10.0, 1 << 30), CheckOptions())
    events: list[Event] = []
    asked = Options(Path("model.pt2"), **options)
    context = RunContext(asked, folder, events.append, journal)
    subject = Subject(context, WHOLE, ProgramSize(3, 5, 1, 0), client, target, 1.0)
    subject = replace(subject, other_causes=causes or OtherCauses())
    found = reduce_listing(context, subject, reduce(subject), 0.0)
    record_minimal_kinds(context, found)
    return found, events


def sizes(program: PrintedProgram) -> tuple[int, ...]:
    return program.inputs[0].recipe().shape


def notes(events: list[Event]) -> str:
    return "\n".join(event.text for event in events if isinstance(event, NoteAdded))


def test_reduced_program_is_simplified_in_source_form(tmp_path: Path) -> None:
    worker = Worker(lambda program: sizes(program)[0] >= 2)
    found, events = reduced(tmp_path, worker)
    best = found.reducer.best.listing
    assert best is not None
    assert sizes(best)[0] == 2
    assert best.cost < LISTED.cost
    assert len(worker.compiled) <= 12
    data = str((tmp_path / VALUES).resolve())
    assert {o.form for o in worker.options} == {CandidateForm.SOURCE}
    assert {o.data for o in worker.options} == {data} == {found.data}
    assert found.kinds["operators"] == found.kinds["sizes"] == MINIMAL
    assert "simplification: 96 -> " in notes(events)
    steps = [e for e in events if isinstance(e, StepTaken) and e.bytes_of_inputs]
    assert steps[0].bytes_of_inputs is not None
    assert steps[0].bytes_of_inputs[0] == 96


def test_mismatch_in_values_does_not_become_a_mismatch_in_shape(tmp_path: Path) -> None:
    """At small sizes it fails by another fault, whatever that is."""

    def fails(program: PrintedProgram) -> bool | Ending:
        return SHAPE if sizes(program)[0] < 3 else DIFFERS

    worker = Worker(fails)
    found, _ = reduced(tmp_path, worker)
    best = found.reducer.best.listing
    assert best is not None
    assert sizes(best)[0] == 3
    assert found.kinds["sizes"] == MINIMAL
    caught = [c.text for c in found.collect_other_failures(WRONG)]
    assert caught == ["shape 1"]


def test_failure_of_vectorized_code_does_not_become_another_at_small_sizes(
    tmp_path: Path,
) -> None:
    """Below 9 elements it fails by another fault, which needs no vectors."""

    def fails(program: PrintedProgram) -> bool:
        count = math.prod(sizes(program))
        return count < 9 or (count >= 12 and not is_scalar(worker))

    worker, journal = Worker(fails), Journal()
    found, events = reduced(tmp_path, worker, journal)
    best = found.reducer.best.listing
    assert best is not None
    assert math.prod(sizes(best)) == 12
    said = "with cpp.simdlen=1, the program passed before its sizes became smaller, and"
    assert f"{said} still failed after (--candidate " in notes(events)
    asked = len(worker.compiled)
    same, _ = reduced(tmp_path, worker, journal)  # resumed
    assert same.reducer.best == found.reducer.best
    assert len(worker.compiled) == asked


def test_failure_at_large_sizes_does_not_become_another_at_small_sizes(
    tmp_path: Path,
) -> None:
    """Between 9 and 63 columns it passes, and no setting tells the faults apart."""

    def fails(program: PrintedProgram) -> bool:
        return not 9 <= sizes(program)[-1] < 64

    large = replace(SAVED, shape=(4, 100))
    worker = Worker(fails, listed=replace_input(LISTED, large))
    journal = Journal()
    found, events = reduced(tmp_path, worker, journal)
    best = found.reducer.best.listing
    assert best is not None
    assert sizes(best)[-1] == 64
    said = "fails with size 100, passes with 20 and 17, and fails with 1 (--candidate "
    assert said in notes(events)
    asked = len(worker.compiled)
    same, _ = reduced(tmp_path, worker, journal)  # resumed
    assert same.reducer.best == found.reducer.best
    assert len(worker.compiled) == asked


def replace_input(program: PrintedProgram, recipe: TensorSpec) -> PrintedProgram:
    [given] = program.given
    return replace(program, given=(given.with_recipe(Run.EXAMPLE, recipe),))


def is_scalar(worker: Worker) -> bool:
    return worker.options[-1].inductor.get("cpp.simdlen") == 1


def test_fake_kernel_mismatches_of_kept_operators_stay_the_same(tmp_path: Path) -> None:
    """Of operators that are left, and only while what is sought is of a run."""
    lies = (strided(name, (1, 4), (6, 1)) for name in ("tanh", "tanh", "cos"))
    causes = OtherCauses(tuple(lies))
    refused = classify_ending(REFUSES).signature
    assert refused is not None
    said = ("aten.tanh.default: strides",)
    for failing, target, kept in ((DIFFERS, WRONG, said), (REFUSES, refused, ())):
        worker = Worker(lambda _: True, failing=failing)
        found, _ = reduced(tmp_path, worker, target=target, causes=causes)
        assert found.made_of is not None
        assert {o.mismatches for o in worker.options} == {kept}


def test_simplification_respects_the_bounds_of_custom_operators(tmp_path: Path) -> None:
    """Not those of which it is known that the original's do not."""
    tanh = "aten.tanh.default"
    for what, bounded in ((Misbehavior.LAYOUT, (tanh,)), (Misbehavior.STRAYS, ())):
        causes = OtherCauses(examined=(OperatorFinding(tanh, what, "tanh"),))
        worker = Worker(lambda _: True)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(making_smaller, "PYTORCH_NAMESPACES", frozenset())
            reduced(tmp_path, worker, causes=causes)
        asked = {o.bounded for o in worker.options}
        assert {tuple(b for b in some if b == tanh) for some in asked} == {bounded}


DIES = Ending("signal", signal.SIGFPE, Stage.PASSING)


@pytest.mark.parametrize(
    ("ending", "caught"),
    [
        (replace(DIFFERS, stage=Stage.PASSING), []),
        (DIES, ["crash at the sizes that must pass"]),
    ],
)
def test_target_failure_at_passing_sizes_is_not_among_other_failures(
    tmp_path: Path, ending: Ending, caught: list[str]
) -> None:
    """Made small, they are those that fail; another failure there is by-catch."""
    worker = Worker(lambda program: ending if sizes(program)[0] < 3 else DIFFERS)
    found, _ = reduced(tmp_path, worker)
    best = found.reducer.best.listing
    assert best is not None
    assert sizes(best)[0] == 3
    told = [
        f"{c.kind} {Stage(c.stage).place}" for c in found.collect_other_failures(WRONG)
    ]
    assert told == caught


def test_values_come_from_a_seed_if_the_seeded_program_fails(tmp_path: Path) -> None:
    worker = Worker(lambda _: True)
    reduced(tmp_path, worker, keep=("values", "sizes"))
    assert worker.compiled[0].inputs[0].recipe().fill == Seeded("randn")

    def exact(program: PrintedProgram) -> bool:
        return program.inputs[0].recipe().fill == Saved("example_x")

    worker = Worker(exact)
    found, _ = reduced(tmp_path, worker)
    assert worker.compiled[1] == LISTED
    best = found.reducer.best.listing
    assert best is not None
    assert exact(best)


def test_kinds_named_by_keep_are_not_simplified(tmp_path: Path) -> None:
    found, _ = reduced(tmp_path, Worker(lambda _: True), keep=("sizes",))
    best = found.reducer.best.listing
    assert best is not None
    assert sizes(best) == (4, 6)
    assert found.kinds["sizes"] == "kept"
    assert found.kinds["values"] == PLAINEST


def test_simplification_stops_at_the_check_limit(tmp_path: Path) -> None:
    spent = len(reduced(tmp_path, Worker(lambda _: False))[0].search.verdicts())
    found, _ = reduced(tmp_path, Worker(lambda _: True), max_checks=spent + 1)
    assert found.stopped == ""
    assert found.minimal
    assert found.kinds["operators"] == MINIMAL
    assert found.kinds["sizes"] == f"not tested: limit of {spent + 1} checks reached"


def test_result_is_kept_if_no_listing_fails(tmp_path: Path) -> None:
    found, events = reduced(tmp_path, Worker(lambda _: False))
    assert found.made_of is None
    assert found.reducer.best.listing is None
    assert (
        found.kinds["sizes"] == "not tested: the program does not fail as Python source"
    )
    assert found.kinds["operators"] == MINIMAL
    assert "the program does not fail as Python source" in notes(events)
    checks = [v for each in found.all for v in each.search.verdicts()]
    assert len(checks) == len(found.search.verdicts()) + 2


def test_kinds_are_not_minimal_if_rewrites_cannot_be_fitted(
    tmp_path: Path,
) -> None:
    found, _ = reduced(tmp_path, Worker(lambda _: True, refuses=FitRewrites))
    assert found.kinds["operators"] == MINIMAL
    assert found.kinds["sizes"] == "not tested: no such thing here"


def test_only_values_are_minimal_if_fake_tensors_cannot_run_the_program(
    tmp_path: Path,
) -> None:
    worker = Worker(lambda _: True, misfit="no fake class\nof a queue")
    found, _ = reduced(tmp_path, worker)
    assert found.kinds["operators"] == MINIMAL
    assert found.kinds["values"] == PLAINEST
    for kind in ("sizes", "weights", "arguments", "operands", "branches"):
        assert found.kinds[kind] == (
            "not tested: the program does not run with fake tensors: no fake class"
        )


def test_result_is_kept_if_only_strategies_for_operators_are_selected(
    tmp_path: Path,
) -> None:
    worker = Worker(lambda _: True)
    found, _ = reduced(tmp_path, worker, strategies=("drop_nodes",))
    assert worker.compiled == []
    assert found.kinds["sizes"] == "not tested: no strategy for this was selected"


def test_operands_are_not_minimal_with_only_some_operator_strategies(
    tmp_path: Path,
) -> None:
    for folder in "ab":
        (tmp_path / folder).mkdir()
    asked = ("drop_nodes", "redirect_operands")
    part, _ = reduced(tmp_path / "a", Worker(lambda _: True), strategies=asked)
    assert "only some strategies for operators were selected" in part.kinds["operands"]
    every, _ = reduced(tmp_path / "b", Worker(lambda _: True))
    assert every.kinds["operands"] == MINIMAL


def test_dropping_a_listing_restores_the_reduced_program(tmp_path: Path) -> None:
    listed, _ = reduced(tmp_path, Worker(lambda _: True))
    checks = sum(len(each.search.verdicts()) for each in listed.all)
    found = drop_listing(listed, "its repro passes")
    assert found.reducer.best.listing is None
    assert found.short_of == "its repro passes"
    assert sum(len(each.search.verdicts()) for each in found.all) == checks


def test_result_is_written_with_short_names() -> None:
    program = listing(
        "add_7 = torch.ops.aten.tanh.default(arg0_1)\nreturn add_7", arg0_1=SAVED
    )
    candidate = replace(WHOLE, keep=frozenset({"tanh"}), listing=program)
    told = with_short_names(candidate)
    assert told.listing is not None
    assert [line.line() for line in told.listing.main.statements] == [
        "tanh = torch.ops.aten.tanh.default(x)",
        "return tanh",
    ]
    assert told.keep == candidate.keep
    assert with_short_names(WHOLE) is WHOLE


@pytest.mark.parametrize("more", [0, 1, 3])
def test_listing_cut_short_by_the_check_limit_is_marked_as_short(
    tmp_path: Path, more: int
) -> None:
    """Before its first question, in those that it begins with, and after them."""
    unbounded, _ = reduced(tmp_path, Worker(lambda p: sizes(p)[0] >= 2))
    assert unbounded.made_of is not None
    assert not unbounded.is_short
    before = len(unbounded.made_of.search.verdicts())
    worker = Worker(lambda p: sizes(p)[0] >= 2)
    found, _ = reduced(tmp_path, worker, max_checks=before + more)
    assert found.stopped == ""
    assert found.short_of == f"limit of {before + more} checks reached"
    assert found.is_short
