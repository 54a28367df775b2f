"""A result whose repro does not fail is not the end: an earlier step's may."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.doubles import Arguments, FakeServer, candidates_in, written

from shrinkfx.check.baseline.with_guard_pages import Guarding
from shrinkfx.check.oracle import ENOUGH, CheckClient, Limits
from shrinkfx.errors import BudgetExhausted
from shrinkfx.events import Event, NoteAdded
from shrinkfx.failure.signature import MEMORY_FAULT, Kind, Signature, Stage
from shrinkfx.journal.journal import Journal
from shrinkfx.options.options import Options
from shrinkfx.preloads.preload_bundle import PreloadBundle
from shrinkfx.program.candidate import Candidate
from shrinkfx.protocol.answers import Ending, Invalid, NotSanitized, Raised
from shrinkfx.protocol.choices import Build, CandidateForm, Guard
from shrinkfx.protocol.requests import CheckOptions
from shrinkfx.report.record import ProgramSize, VerifiedRepro
from shrinkfx.run.context import RunContext, Subject
from shrinkfx.run.reduction import reduce
from shrinkfx.run.verification import (
    INDEPENDENT_RUNS,
    Verification,
    VerifiedResult,
    move_result,
)
from shrinkfx.search.staged import StagedSearch
from shrinkfx.testing import chain, needs, whole

WHOLE = whole(chain("x", *(f"n{i}" for i in range(12))))
RAISES = Signature(Kind.EXCEPTION, Stage.RUN, "RuntimeError: torn")
TORN = Raised("RuntimeError", "torn")
OVERRUN = Signature(Kind.IMA, Stage.RUN, MEMORY_FAULT)
DIES = Ending("signal", signal.SIGSEGV, "run")
PASSES = Ending("exit", stage="done", log="no longer fails\n")

Fails = Callable[[Candidate, Guard], bool]
Script = Callable[[Candidate, Guard], bool | None]
"""None where the run ends without an answer."""


class World:
    """Compiled programs and scripts that fail as two predicates say.

    Attributes:
        source, stock: what else it takes to fail as source, and in the stock build.
        compiled, scripts: what was run, and with which guard pages.
        ways: of what was compiled, in which form and build.
    """

    def __init__(self, folder: Path, program: Fails, script: Script) -> None:
        self.folder = folder
        self.program, self.script = program, script
        self.source: Fails = lambda *_: True
        self.stock: Fails = lambda *_: True
        self.ways: list[tuple[Candidate, str, str]] = []
        self.compiled: list[tuple[Candidate, Guard]] = []
        self.scripts: list[tuple[Candidate, Guard]] = []
        self.events: list[Event] = []
        self.ending = DIES
        self.refused: list[Candidate] = []

    def answer(self, asked: Arguments) -> Ending:
        candidate = Candidate.from_json(WHOLE.skeleton, asked["candidate"])
        if "data" in asked:
            self.last = candidate
            if candidate in self.refused:
                return Ending("exit", answer=Invalid("it cannot be rebuilt"))
            return written(asked, candidate)
        if asked.get("sanitize"):
            return Ending("exit", answer=NotSanitized("no libasan"))
        side = Guard(asked.get("guard_pages", Guard.OFF))
        self.compiled.append((candidate, side))
        form, build = asked.get("form", "program"), asked.get("build", Build.STOCK)
        self.ways.append((candidate, str(form), str(build)))
        demands = [self.program]
        demands += [self.source] if form == CandidateForm.SOURCE else []
        demands += [self.stock] if build == Build.STOCK else []
        fails = all(demand(candidate, side) for demand in demands)
        return self.ending if fails else PASSES

    def run(self, asked: Arguments) -> Ending:
        text = Path(asked["path"]).read_text()
        side = Guard(asked.get("guard_pages", Guard.OFF))
        stated = candidates_in(text)
        candidate = self.last  # embedded: the program itself, in no readable form
        if stated:
            candidate = Candidate.from_json(WHOLE.skeleton, stated[0])
        self.scripts.append((candidate, side))
        if (fails := self.script(candidate, side)) is None:
            return Ending("late", stage="run")
        if not fails or (stated and not self.source(candidate, side)):
            return PASSES
        if self.ending is DIES:
            return DIES
        log = 'File "repro.py", line 1\n    actual = compiled()\nRuntimeError: torn\n'
        return Ending("exit", 1, "run", answer=TORN, log=log)

    def bare(self, context: RunContext, backend: str, worker: Sequence[str]) -> Any:
        return FakeServer(self.run)

    def verified(
        self, path: Path | None = None, **about: Any
    ) -> tuple[VerifiedRepro, VerifiedResult]:
        server: Any = FakeServer(self.answer)
        options = Options(Path("model.pt2"), max_checks=about.pop("max_checks", None))
        with closing(Journal(path or ":memory:")) as journal:
            context = RunContext(options, self.folder, self.events.append, journal)
            guarding = about.pop("guarding", Guarding())
            limits = Limits(9.0, 1 << 30)
            checked = CheckOptions(build=about.pop("build", Build.STOCK))
            client = CheckClient(server, limits, guarding.apply_to(checked))
            target = about.pop("target", RAISES)
            context.worker = server
            subject = Subject(
                context, WHOLE, ProgramSize(12), client, target, 1.0, None, guarding
            )
            self.found = reduce(subject)
            kept = Verification(subject, self.found, 0.0).run()
        return kept.verified, kept

    @property
    def notes(self) -> str:
        return "\n".join(e.text for e in self.events if isinstance(e, NoteAdded))


@pytest.fixture(name="world")
def _world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    world = World(tmp_path, lambda *_: True, lambda *_: True)
    monkeypatch.setattr(
        RunContext, "bare_server", lambda context, *a: world.bare(context, *a)
    )
    return world


def only(*names: str) -> Fails:
    return lambda candidate, _: needs(*names)(candidate)


def raising(world: World, program: Fails, script: Script) -> World:
    world.program, world.script = program, script
    world.ending = Ending("exit", stage="run", answer=TORN)
    return world


def test_verified_result_is_run_exactly_three_times(world: World) -> None:
    raising(world, only("n3"), only("n3"))
    verified, kept = world.verified()
    assert (verified.runs, verified.failed) == (3, 3)
    assert kept.result.candidate.operators == ("n3",)
    assert len(world.scripts) == 3


def test_search_backtracks_to_a_verified_step_and_continues_from_there(
    world: World,
) -> None:
    raising(world, only("n3"), only("n3", "n7"))
    verified, kept = world.verified()
    assert (verified.runs, verified.failed) == (3, 3)
    assert kept.result.candidate.operators == ("n3", "n7")
    assert world.found.reducer.best is kept.result.candidate
    assert world.found.reducer.minimal
    text = (world.folder / "repro.py").read_text()
    assert '"n7"' in text
    assert (
        "some runs of the repro do not fail, or fail in another way: going back to a "
        "larger step whose repro fails in the same way in every run"
    ) in world.notes
    assert not list(world.folder.glob("draft-*"))


def test_result_is_unverified_only_if_the_input_program_repro_passes(
    world: World,
) -> None:
    raising(world, only("n3"), lambda *_: False)
    verified, kept = world.verified()
    assert (verified.runs, verified.failed) == (3, 0)
    assert kept.result.candidate.operators == ("n3",)
    assert WHOLE in [candidate for candidate, _ in world.scripts]
    assert "from 12 operators to 1." in (world.folder / "repro.py").read_text()


def test_stopped_search_backtracks_but_does_not_continue(world: World) -> None:
    raising(world, only("n3"), only("n3", "n7"))
    verified, kept = world.verified(max_checks=4)
    assert verified.failed == 3
    assert needs("n3", "n7")(kept.result.candidate)
    assert world.found.stopped
    assert len(world.found.search.verdicts()) == 4


def silent_in(world: World, runs: set[int]) -> Script:
    """Have these runs of scripts end without an answer, and the others fail."""
    return lambda *_: None if len(world.scripts) in runs else True


def test_run_without_an_answer_does_not_cause_backtracking(world: World) -> None:
    """Be that one that is made again, or both of its tries."""
    for late in ({1}, {2}, {2, 3}, {3, 4}):
        world.scripts.clear()
        raising(world, only("n3"), silent_in(world, late))
        verified, kept = world.verified()
        assert verified.failed == verified.runs == (2 if len(late) > 1 else 3)
        assert kept.result.candidate.operators == ("n3",)
        assert all(c == kept.result.candidate for c, _ in world.scripts)
        assert "earlier step" not in world.notes


def test_result_without_any_answered_run_is_not_verified(
    world: World,
) -> None:
    """A larger step's may have one: its server need not die of it."""
    raising(world, only("n3"), lambda c, _: None if c.cost[0] == 1 else True)
    verified, kept = world.verified()
    assert (verified.runs, verified.failed) == (3, 3)
    assert kept.result.candidate.cost[0] > 1
    raising(world, only("n3"), lambda *_: None)
    verified, kept = world.verified()
    assert (verified.runs, verified.failed) == (0, 0)
    assert not verified.always_fails
    assert kept.result.candidate.operators == ("n3",)


class Killed(Exception):
    """Stands for a kill: nothing is answered any more."""


def test_run_killed_in_any_verification_run_resumes_to_the_same_result(
    world: World, tmp_path: Path
) -> None:
    raising(world, only("n3"), only("n3", "n7"))
    _, unbroken = world.verified()
    scripts = list(world.scripts)
    for moment in range(0, len(scripts), 7):
        path = tmp_path / f"{moment}.sqlite"
        world.scripts.clear()

        def dies(candidate: Candidate, side: Guard, moment: int = moment) -> bool:
            if len(world.scripts) > moment:
                raise Killed
            return needs("n3", "n7")(candidate)

        world.script = dies
        with pytest.raises(Killed):
            world.verified(path)
        world.script = only("n3", "n7")
        _, kept = world.verified(path)
        assert kept.result.candidate == unbroken.result.candidate
        assert kept.verified.failed == 3


GUARDED = Guarding("after each tensor", Guard.AFTER)
STEADY = replace(GUARDED, without_guards="crash in run: SIGSEGV", steady=True)
SOMETIMES = replace(GUARDED, without_guards="passes (3 of 3 runs)")


def guarded(plain: Fails) -> Fails:
    """Fail with n3 beside guard pages; without them as ``plain`` says."""

    def fails(candidate: Candidate, side: Guard) -> bool:
        return only("n3")(candidate, side) and (
            side is not Guard.OFF or plain(candidate, side)
        )

    return fails


def test_result_fails_without_guard_pages_if_the_input_program_does(
    world: World,
) -> None:
    world.program = world.script = guarded(only("n3", "n7"))
    verified, kept = world.verified(target=OVERRUN, guarding=STEADY)
    assert verified.failed == INDEPENDENT_RUNS
    assert kept.result.candidate.operators == ("n3", "n7")
    assert {side for _, side in world.scripts} == {Guard.OFF}
    assert len(world.scripts) == INDEPENDENT_RUNS
    assert kept.record.memory.guard is Guard.OFF
    assert f"({ENOUGH} of {ENOUGH} runs)" in kept.record.memory.without_guards
    assert world.found.without_guard_pages


def test_result_may_need_guard_pages_if_the_input_program_does(world: World) -> None:
    world.program = world.script = guarded(only("n3", "n7"))
    verified, kept = world.verified(target=OVERRUN, guarding=SOMETIMES)
    assert verified.failed == 3
    assert kept.result.candidate.operators == ("n3",)
    assert kept.record.memory.guard is Guard.AFTER


def test_guard_pages_are_used_if_no_repro_fails_without_them(world: World) -> None:
    world.program = guarded(only("n3"))
    world.script = guarded(lambda *_: False)
    verified, kept = world.verified(target=OVERRUN, guarding=STEADY)
    assert verified.failed == 3
    assert kept.result.candidate.operators == ("n3",)
    assert kept.record.memory.guard is Guard.AFTER
    assert "guard pages" in (world.folder / "repro.py").read_text()


def test_search_keeps_guard_pages_if_the_input_program_needs_them(
    world: World,
) -> None:
    world.program = world.script = guarded(lambda *_: False)
    _, kept = world.verified(target=OVERRUN, guarding=STEADY)
    assert kept.result.candidate.operators == ("n3",)
    assert kept.record.memory.guard is Guard.AFTER
    assert (
        "without guard pages, not even the input program fails in every run"
        in world.notes
    )


def test_minutes_spent_during_backtracking_leave_the_unverified_result(
    world: World,
) -> None:
    raising(world, only("n3"), only("n3", "n7"))

    def is_out_of_time(candidate: Candidate, side: Guard) -> bool:
        if candidate.cost[0] > 1:
            raise BudgetExhausted("time limit reached")
        return False

    world.script = is_out_of_time
    verified, kept = world.verified()
    assert (verified.runs, verified.failed) == (3, 0)
    assert kept.result.candidate.operators == ("n3",)
    assert world.found.stopped == "time limit reached"


def fails_in(world: World, script: Fails, runs: dict[tuple[str, ...], int]) -> None:
    """Have some candidates' repros fail so often only, then pass once, and so on."""

    def fails(candidate: Candidate, side: Guard) -> bool:
        times = [c for c, _ in world.scripts].count(candidate)
        return script(candidate, side) and times != runs.get(candidate.operators)

    world.script = fails


def test_verified_step_becomes_the_result_without_another_run(world: World) -> None:
    raising(world, only("n3"), only("n3", "n7"))
    _, kept = world.verified()
    best = kept.result.candidate
    assert [candidate for candidate, _ in world.scripts].count(best) == 3
    assert (world.folder / "repro.py") == kept.verified.written.files[0]
    assert all(file.exists() for file in kept.verified.written.files)
    assert (world.folder / "minimal.pt2").read_text() == json.dumps(best.to_json())
    left = {file.name for file in world.folder.iterdir()}
    assert left == {"minimal.pt2", *(f.name for f in kept.verified.written.files)}


def test_result_verified_once_is_kept_if_no_other_step_verifies(
    world: World, tmp_path: Path
) -> None:
    """Verified in a session that was killed then, it fails twice of three after."""
    path = tmp_path / "journal.sqlite"
    raising(world, only("n3"), only("n3"))
    world.verified(path)
    world.scripts.clear()
    fails_in(world, lambda c, _: c.operators == ("n3",), {("n3",): 3})
    verified, kept = world.verified(path)
    assert kept.result.candidate.operators == ("n3",)
    assert (verified.runs, verified.failed) == (3, 2)
    assert '"n3"' in (world.folder / "repro.py").read_text()
    others = [c for c, _ in world.scripts if c.operators != ("n3",)]
    assert WHOLE in others
    assert len({c.digest for c in others}) <= 4


def test_result_that_cannot_be_written_is_replaced_by_another_step(
    world: World,
) -> None:
    raising(world, only("n3"), only("n3"))
    world.refused = [world.verified()[1].result.candidate]
    verified, kept = world.verified()
    assert verified.failed == 3
    assert needs("n3")(kept.result.candidate)
    assert kept.result.candidate not in world.refused


def test_repro_verified_before_the_search_stopped_states_the_stop(
    world: World,
) -> None:
    raising(world, only("n3"), only("n3", "n7"))
    world.verified()
    checks = len(world.found.search.verdicts())
    world.verified(max_checks=checks - 1)
    assert world.found.stopped
    assert "stopped early" in (world.folder / "repro.py").read_text()


def test_files_of_an_earlier_repro_are_removed_except_original_preloads(
    world: World, tmp_path: Path
) -> None:
    raising(world, only("n3"), only("n3"))
    _, kept = world.verified()
    names = ("repro.py", "repro_data.pt", "ops.py", "copied.py")
    out, folder = tmp_path / "out", tmp_path / "scratch"
    for place in (out, folder):
        place.mkdir()
        for name in names if place == out else names[:1]:
            (place / name).write_text(place.name)
    carried = PreloadBundle(
        files={"ops.py": out / "ops.py", "copied.py": tmp_path / "c.py"}
    )
    before = rewritten(kept, tuple(out / name for name in names), carried)
    again = rewritten(kept, (folder / "repro.py",), PreloadBundle())
    lies = move_result(again, folder, out, before)
    assert lies.verified.written.files == (out / "repro.py",)
    assert (out / "repro.py").read_text() == "scratch"
    assert {file.name for file in out.iterdir()} == {"repro.py", "ops.py"}


def rewritten(
    kept: VerifiedResult, files: tuple[Path, ...], carried: PreloadBundle
) -> VerifiedResult:
    written = replace(kept.verified.written, files=files, carried=carried)
    verified = replace(kept.verified, written=written)
    return replace(kept, record=replace(kept.record, verified=verified))


def in_stock_builds(world: World) -> list[Candidate]:
    return [c for c, _, build in world.ways if build == Build.STOCK]


def test_failing_repro_makes_source_and_stock_queries_unnecessary(world: World) -> None:
    raising(world, only("n3"), only("n3"))
    verified, kept = world.verified(build=Build.FAST)
    assert verified.always_fails
    assert kept.result.candidate.operators == ("n3",)
    assert in_stock_builds(world) == []
    assert {form for _, form, _ in world.ways} == {"program"}
    assert kept.verified.written.is_source
    assert world.found.reducer.minimal
    assert (
        "this repro.py does not fail: testing which candidates fail as source code "
        "and with a normal AOTInductor build"
    ) not in world.notes


def test_passing_repro_makes_the_search_continue_in_the_stock_build(
    world: World,
) -> None:
    raising(world, only("n3"), only("n3", "n7"))
    world.stock = only("n7")
    verified, kept = world.verified(build=Build.FAST)
    assert (verified.runs, verified.failed) == (3, 3)
    assert kept.result.candidate.operators == ("n3", "n7")
    assert world.found.reducer.asker.build == Build.STOCK
    assert world.found.reducer.minimal
    ways = [(candidate.digest, *way) for candidate, *way in world.ways]
    assert len(ways) == len(set(ways))  # each was asked about once
    assert (
        "this repro.py does not fail: testing which candidates fail as source code "
        "and with a normal AOTInductor build"
    ) in world.notes
    assert (
        "the result does not fail in the stock build: continuing the "
        "search with stock builds"
    ) in world.notes
    assert "earlier step" not in world.notes  # it was the build, and not the repro
    assert '"n7"' in (world.folder / "repro.py").read_text()


def test_result_that_never_fails_as_source_is_verified_as_program(world: World) -> None:
    raising(world, only("n3"), only("n3"))
    world.source = lambda *_: False
    verified, kept = world.verified(build=Build.FAST)
    assert verified.always_fails
    assert kept.result.candidate.operators == ("n3",)
    assert not kept.verified.written.is_source
    assert in_stock_builds(world) == [kept.result.candidate]
    assert len(world.scripts) == 1 + 1 + 3  # as source by a seed and not, then embedded


DEMANDS: list[tuple[str, ...]] = [(), ("n5",), ("n1", "n9"), ("nowhere",)]


@pytest.mark.parametrize("source", DEMANDS)
@pytest.mark.parametrize("stock", DEMANDS)
def test_result_is_the_same_as_if_all_stages_were_tested_from_the_start(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    source: tuple[str, ...],
    stock: tuple[str, ...],
) -> None:
    """A script has the demands of both, as source and stock build in one."""
    raising(world, only("n3"), only("n3", *stock))
    world.source, world.stock = only(*source), only(*stock)
    verified, last = world.verified(build=Build.FAST)
    asked = len(world.ways)
    world.ways.clear()
    find = StagedSearch.find

    def asking_at_once(search: StagedSearch) -> None:
        find(search)
        search.ask_stages()

    monkeypatch.setattr(StagedSearch, "find", asking_at_once)
    before, first = world.verified(build=Build.FAST)
    # What was known of its source when its repro was written may differ.
    assert replace(last.result, no_source=first.result.no_source) == first.result
    assert (verified.runs, verified.failed) == (before.runs, before.failed)
    assert verified.written.how == before.written.how
    assert asked <= len(world.ways)


def test_stages_cut_short_by_the_check_limit_keep_their_best_candidate(
    world: World,
) -> None:
    raising(world, only("n3"), only("n3", "n7"))
    world.stock = only("n7")
    world.verified(build=Build.FAST)
    total = len(world.found.search.verdicts())
    for checks in range(total - 3, total):
        verified, kept = world.verified(build=Build.FAST, max_checks=checks)
        assert f"limit of {checks} checks reached" in world.found.stopped
        assert verified.always_fails
        assert kept.result.candidate == world.found.reducer.best
        assert "stopped early" in (world.folder / "repro.py").read_text()


def test_repro_failing_without_guard_pages_makes_stage_queries_unnecessary(
    world: World,
) -> None:
    """What is asked without guard pages before it is asked in the search's build."""
    world.program = world.script = guarded(only("n3"))
    verified, kept = world.verified(target=OVERRUN, guarding=STEADY, build=Build.FAST)
    assert verified.runs == verified.failed == INDEPENDENT_RUNS
    assert kept.result.candidate.operators == ("n3",)
    assert in_stock_builds(world) == []
    assert kept.record.memory.guard is Guard.OFF
    assert {side for _, side in world.scripts} == {Guard.OFF}
    plain = [c.operators for c, side in world.compiled if side is Guard.OFF]
    assert plain == [("n3",)] * ENOUGH


def test_runs_without_guard_pages_use_the_stock_build_if_the_repro_passes(
    world: World,
) -> None:
    """As soon as the repro of what does so in the fast build passes."""
    world.program = guarded(only("n3"))
    world.stock = lambda c, side: side is not Guard.OFF or needs("n7")(c)
    world.script = guarded(only("n3", "n7"))
    verified, kept = world.verified(target=OVERRUN, guarding=STEADY, build=Build.FAST)
    assert verified.always_fails
    assert kept.result.candidate.operators == ("n3", "n7")
    assert kept.record.memory.guard is Guard.OFF
    world.stock = only("n7")
    verified, kept = world.verified(target=OVERRUN, guarding=STEADY, build=Build.FAST)
    assert verified.always_fails
    assert kept.result.candidate.operators == ("n3", "n7")
    assert world.found.reducer.asker.build == Build.STOCK
    assert f"({ENOUGH} of {ENOUGH} runs)" in kept.record.memory.without_guards
