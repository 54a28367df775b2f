"""Each of the sizes is run once, whatever happens in between."""

from __future__ import annotations

import errno
from contextlib import closing
from pathlib import Path

import pytest

from shrinkfx.errors import (
    BudgetExhausted,
    NotReproducible,
    StorageError,
)
from shrinkfx.failure.signature import MEMORY_FAULT, Kind, Signature, Stage
from shrinkfx.failure.verdict import Observation
from shrinkfx.program.sizes import Sizes, Space, Symbol
from shrinkfx.run.sweep import SweepJournal
from shrinkfx.sweep.boundary import Grid
from shrinkfx.sweep.examples import (
    Answer,
    Example,
    Examples,
    SweepFailure,
    judge_example,
)
from shrinkfx.sweep.hunt import Plan, sweep
from shrinkfx.sweep.minimise import collect_failures, minimise_outside

ASSERTS = Signature(Kind.ASSERT, Stage.RUN, "index out of bounds", "of 12")
CRASHES = Signature(Kind.CRASH, Stage.RUN, MEMORY_FAULT, "SIGSEGV")
HANGS = Signature(Kind.HANG, Stage.RUN)
SPACE = Space((Symbol("a", 2, 4096, 6), Symbol("b", 2, 4096, 9)))


@pytest.mark.parametrize(
    ("seen", "until", "answer", "reason"),
    [
        (Observation(), "any", Answer.PASSES, ""),
        (Observation(ASSERTS), "any", Answer.FAILS, ""),
        (Observation(ASSERTS), "crash", Answer.FAILS, ""),
        (Observation(invalid="eager: no"), "any", Answer.INVALID, "eager: no"),
        (Observation(HANGS, unresolved="slow"), "any", Answer.UNRESOLVED, "slow"),
        (Observation(HANGS, unresolved="slow"), "hang", Answer.FAILS, ""),
        (Observation(unresolved="cancelled"), "hang", Answer.UNRESOLVED, "cancelled"),
    ],
)
def test_observation_and_awaited_kind_determine_the_answer(
    seen: Observation, until: str, answer: Answer, reason: str
) -> None:
    example = judge_example((3,), seen, until)
    assert (example.answer, example.reason) == (answer, reason)
    assert (example.signature is not None) == (answer is Answer.FAILS)


def program(a: int, b: int) -> Signature | None:
    if b >= 700:
        return CRASHES
    return ASSERTS if a == b > 20 else None


class Killed(Exception):
    """Stands for the end of the process."""


class Runs:
    """Runs the program, until it is killed."""

    def __init__(self, left: int = 10_000) -> None:
        self._left = left
        self.sizes: list[Sizes] = []

    def __call__(self, sizes: Sizes) -> Example:
        self.sizes.append(sizes)
        if len(self.sizes) > self._left:
            raise Killed
        seen = program(*sizes)
        return Example(sizes, Answer.FAILS if seen else Answer.PASSES, seen)


def swept(journal: Path, runs: Runs) -> list[SweepFailure]:
    with closing(SweepJournal(journal)) as record:
        return sweep(Plan(SPACE, 1 << 30, 3), Examples(runs, record), count=100, seed=3)


@pytest.mark.parametrize("left", [0, 1, 40, 120, 160])
def test_resumed_sweep_repeats_no_run_and_finds_the_same_failures(
    tmp_path: Path, left: int
) -> None:
    whole = Runs()
    found = swept(tmp_path / "whole.sqlite", whole)
    assert {f.sizes for f in found} == {(21, 21), (2, 700)}
    assert len(whole.sizes) > 160

    killed, rest = Runs(left), Runs()
    with pytest.raises(Killed):
        swept(tmp_path / "killed.sqlite", killed)
    assert swept(tmp_path / "killed.sqlite", rest) == found
    # What ran when it was killed has no answer, and is run again.
    assert [*killed.sizes[:left], *rest.sizes] == whole.sizes


def test_sizes_that_kill_the_sweep_twice_are_skipped(tmp_path: Path) -> None:
    for _ in range(2):
        with pytest.raises(Killed):
            swept(tmp_path / "journal.sqlite", Runs(10))
    rest = Runs()
    assert swept(tmp_path / "journal.sqlite", rest)
    eleventh = Runs(10)
    with pytest.raises(Killed):
        swept(tmp_path / "other.sqlite", eleventh)
    assert eleventh.sizes[-1] not in rest.sizes


ENDS = [
    BudgetExhausted("spent"),
    KeyboardInterrupt(),
    StorageError("/", "full", ""),
    NotReproducible("any", 1, [], ""),
    OSError(errno.ENOSPC, "No space"),
]


@pytest.mark.parametrize("end", ENDS)
def test_run_ended_by_an_external_cause_counts_as_no_attempt(
    tmp_path: Path, end: BaseException
) -> None:
    def run(sizes: Sizes) -> Example:
        raise end

    with closing(SweepJournal(tmp_path / "journal.sqlite")) as record:
        for _ in range(3):
            with pytest.raises(type(end)):
                Examples(run, record).ask((3, 4))
        assert record.recall((3, 4), 0) is None


def test_sweep_journal_keeps_parts_and_attempts_apart(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    example = Example((3, 4), Answer.FAILS, ASSERTS, "", 1.5, 0.5, 2)
    with closing(SweepJournal(path)) as journal:
        journal.begin({"seed": 7})
        journal.record_example(journal.record_start((3, 4), 1), example)
    with closing(SweepJournal(path)) as journal:
        assert journal.settings() == {"seed": 7}
        assert journal.count() == 1
        assert journal.recall((3, 4), 1) == example
        assert journal.recall((3, 4), 0) is None
    with closing(SweepJournal(path, "outside")) as journal:
        assert journal.recall((3, 4), 1) is None


def test_failures_are_collected_from_an_interrupted_sweep() -> None:
    examples = Examples(Runs(160))
    with pytest.raises(Killed):
        sweep(Plan(SPACE, 1 << 30, 3), examples, count=100, seed=3)
    found = collect_failures(Grid(SPACE, 1 << 30), examples)
    assert {f.signature for f in found} == {ASSERTS, CRASHES}
    for each in found:
        assert program(*each.sizes) == each.signature
        assert each.nearest is None


def test_missing_guard_is_reported_with_the_nearest_declared_sizes() -> None:
    inside = Examples(Runs())
    outer = Examples(
        lambda s: (
            Example(s, Answer.FAILS, CRASHES)
            if s[0] > 4096
            else Example(s, Answer.PASSES)
        )
    )
    around = [(1, 9), (4097, 9), (6, 1), (1, 2), (4097, 2)]
    (found,) = minimise_outside(around, outer, inside, Grid(SPACE, 1 << 30))
    assert (found.sizes, found.nearest) == ((4097, 2), (4096, 2))
    assert found.missing_guard
