"""No repro of a listing fails: what it was made of is verified, and may be listed anew.

The worker is fake: programs and scripts fail as predicates say.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from support.doubles import FakeServer, asked_of, candidates_in, written
from support.fake_fitter import FakeFitter

from shrinkfx.check.oracle import CheckClient, Limits
from shrinkfx.events import Event, NoteAdded
from shrinkfx.failure.signature import Kind, Signature, Stage
from shrinkfx.options.options import Options
from shrinkfx.program.candidate import Candidate
from shrinkfx.program.edits import Rewrite
from shrinkfx.program.listing.changes import Refill
from shrinkfx.program.listing.tensor_specs import Saved, Seeded, TensorSpec
from shrinkfx.protocol.answers import Ending, Fitted, Listed, Raised, Typed
from shrinkfx.protocol.choices import Build
from shrinkfx.protocol.requests import (
    CheckCandidate,
    CheckOptions,
    FitRewrites,
    ListCandidate,
    Request,
    RunScript,
    WriteCandidate,
)
from shrinkfx.report.record import ProgramSize
from shrinkfx.run.context import RunContext, Subject
from shrinkfx.run.pipeline import verify_reduction
from shrinkfx.run.reduction import SearchResult, reduce
from shrinkfx.run.simplification import record_minimal_kinds, reduce_listing
from shrinkfx.run.verification import VerifiedResult, write_first_repro
from shrinkfx.testing import chain, listing, whole

WHOLE = whole(chain("x", "relu", "tanh", "cos"))
RAISES = Signature(Kind.EXCEPTION, Stage.RUN, "RuntimeError: torn")
FAILS = Ending("exit", stage="run", answer=Raised("RuntimeError", "torn"))
SCRIPT_FAILS = Ending(
    *("exit", 1, "run"),
    answer=Raised("RuntimeError", "torn"),
    log='File "repro.py", line 1\n    actual = compiled()\nRuntimeError: torn\n',
)
PASSES = Ending("exit", stage="done", log="no longer fails\n")
SAVED = TensorSpec((4, 6), "float32", Saved("example_x"))

Fails = Callable[[Candidate], bool]


@dataclass
class World:
    """Programs and scripts that fail as they are told to.

    Attributes:
        program: whether a candidate fails that is compiled, in any build.
        stock: what else it takes in the stock build, and as a script.
        script: what else it takes as a script.
        scripts: what was run as one.
        last: what was written last.
    """

    folder: Path
    program: Fails
    stock: Fails = lambda _: True
    script: Fails = lambda _: True
    scripts: list[Candidate] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    last: Candidate = WHOLE

    def ask(self, request: Request) -> Ending:
        task: Any = request.task
        if isinstance(task, RunScript):
            return self._run(Path(task.path).read_text())
        candidate = Candidate.from_json(WHOLE.skeleton, task.candidate)
        match task:
            case ListCandidate():
                return Ending("exit", answer=_listed(candidate, Path(task.data)))
            case FitRewrites():
                return Ending("exit", answer=_fitted(candidate, task.rewrites))
            case WriteCandidate():
                self.last = candidate
                return written(asked_of(request), candidate)
        assert isinstance(task, CheckCandidate)
        is_stock = request.options.build == Build.STOCK
        fails = self.program(candidate) and (not is_stock or self.stock(candidate))
        return FAILS if fails else PASSES

    def _run(self, text: str) -> Ending:
        candidate = self.last  # embedded: the program itself, in no readable form
        for told in candidates_in(text):
            candidate = Candidate.from_json(WHOLE.skeleton, told)
        self.scripts.append(candidate)
        demands = self.program, self.stock, self.script
        fails = all(demand(candidate) for demand in demands)
        return SCRIPT_FAILS if fails else PASSES

    def bare(self, *_: object) -> Any:
        return self

    def subject(self) -> Subject:
        server: Any = self
        checked = CheckOptions(build=Build.FAST)
        client = CheckClient(server, Limits(9.0, 1 << 30), checked)
        context = RunContext(
            Options(Path("model.pt2")), self.folder, self.events.append
        )
        context.worker = server
        return Subject(context, WHOLE, ProgramSize(3), client, RAISES, 1.0)

    def result(self) -> tuple[SearchResult, VerifiedResult]:
        subject = self.subject()
        found = reduce_listing(subject.context, subject, reduce(subject), 0.0)
        assert found.made_of is not None
        found, kept = verify_reduction(subject, found, 0.0)
        record_minimal_kinds(subject.context, found)
        return found, kept

    @property
    def ready(self) -> Any:
        return FakeServer.ready

    @property
    def notes(self) -> str:
        return "\n".join(e.text for e in self.events if isinstance(e, NoteAdded))


def _listed(candidate: Candidate, data: Path) -> Listed:
    """Write a chain down, with values that can be drawn as well."""
    data.write_bytes(b"values")
    lines, last = [], "x"
    for name in candidate.operators:
        lines.append(f"{name} = torch.ops.aten.{name}.default({last})")
        last = name
    program = listing("\n".join([*lines, f"return {last}"]), x=SAVED)
    return Listed(program, Rewrite((Refill("x", Seeded("randn")),)), str(data))


def _fitted(candidate: Candidate, rewrites: tuple[Rewrite, ...]) -> Fitted:
    fitter = FakeFitter()
    types = fitter.types(candidate).items()
    known = (Typed(*at, t.dtype, t.shape, t.stride, t.device) for at, t in types)
    return Fitted(tuple(fitter.fit(candidate, rewrites)), tuple(known))


def holds(*names: str) -> Fails:
    return lambda candidate: candidate.keep >= {*names}


def is_unlisted(candidate: Candidate) -> bool:
    return candidate.listing is None


@pytest.fixture(name="world")
def _world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    world = World(tmp_path, holds("tanh"))
    monkeypatch.setattr(RunContext, "bare_server", world.bare)
    return world


def test_first_repro_is_written_before_simplification_and_run_once(
    world: World,
) -> None:
    subject = world.subject()
    state = reduce(subject)
    write_first_repro(subject, state)
    assert world.scripts == [state.reducer.best]
    assert (world.folder / "repro.py").exists()
    assert "a first repro is written and fails in one run" in world.notes


def test_first_repro_that_does_not_fail_is_removed(world: World) -> None:
    world.script = lambda _: False
    subject = world.subject()
    write_first_repro(subject, reduce(subject))
    assert not (world.folder / "repro.py").exists()
    assert "a first repro" not in world.notes


def test_first_repro_leaves_that_of_an_earlier_session_alone(world: World) -> None:
    subject = world.subject()
    state = reduce(subject)
    (world.folder / "repro.py").write_text("# verified")
    write_first_repro(subject, state)
    assert not world.scripts
    assert (world.folder / "repro.py").read_text() == "# verified"


def test_flaky_failure_has_no_first_repro(world: World) -> None:
    subject = world.subject()
    state = reduce(subject)
    state.rate = 0.5
    write_first_repro(replace(subject, rate=0.5), state)
    assert not (world.folder / "repro.py").exists()


def test_verified_listing_is_the_result(world: World) -> None:
    found, kept = world.result()
    assert kept.verified.always_fails
    assert kept.result.candidate.listing is not None
    assert found.made_of is not None
    assert len(world.scripts) == 3


def test_reduced_program_is_verified_if_no_listing_verifies(
    world: World,
) -> None:
    world.script = is_unlisted
    found, kept = world.result()
    assert (kept.verified.runs, kept.verified.failed) == (3, 3)
    assert kept.result.candidate.listing is None
    assert found.reducer.best is kept.result.candidate
    assert found.kinds["operators"] == "1-minimal"
    assert found.kinds["sizes"] == (
        "not tested: no repro of the simplified program fails in every run"
    )
    assert (
        "no repro of the simplified program fails in every run: verifying "
        "the program before simplification"
    ) in world.notes
    assert (
        world.notes.count("simplifying the reduced program: sizes, values, arguments")
        == 1
    )
    assert not [c for c in world.scripts[-3:] if c.listing]
    assert '"listing"' not in (world.folder / "repro.py").read_text()


def test_operators_found_during_verification_are_simplified_in_turn(
    world: World,
) -> None:
    world.stock = holds("relu", "tanh")
    found, kept = world.result()
    assert kept.verified.always_fails
    program = kept.result.candidate.listing
    assert program is not None
    assert len(list(program.operators())) == 2
    assert found.made_of is not None
    assert found.made_of.reducer.best.operators == ("relu", "tanh")
    assert found.kinds["sizes"] == "1-minimal"
    assert (
        world.notes.count("simplifying the reduced program: sizes, values, arguments")
        == 2
    )
    counted = [each.search for each in found.all]
    assert len({*map(id, counted)}) == len(counted) == 3  # no check is forgotten
