"""The sweep over sizes: examples, and programs that are a line of Python."""

from __future__ import annotations

import errno
import os
import random
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shrinkfx.errors import BudgetExhausted, NotReproducible, StorageError
from shrinkfx.failure.signature import MEMORY_FAULT, Kind, Signature, Stage
from shrinkfx.failure.verdict import Observation
from shrinkfx.journal.journal import Database, read_progress
from shrinkfx.program.sizes import Sizes, Space, Symbol
from shrinkfx.run.sweep import SweepJournal
from shrinkfx.sweep.examples import (
    Answer,
    Example,
    Examples,
    SweepFailure,
    judge_example,
)
from shrinkfx.sweep.hunt import Plan, sweep
from shrinkfx.sweep.minimise import Grid, collect_failures, minimise_outside

# Each of the sizes is run once, whatever happens in between.


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
    with closing(Database(journal)) as db:
        examples = Examples(runs, SweepJournal(db))
        return sweep(Plan(SPACE, 1 << 30, 3), examples, count=100, seed=3)


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

    with closing(Database(tmp_path / "journal.sqlite")) as db:
        record = SweepJournal(db)
        for _ in range(3):
            with pytest.raises(type(end)):
                Examples(run, record).ask((3, 4))
        assert record.recall((3, 4), 0) is None


def test_sweep_journal_keeps_parts_and_attempts_apart(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    example = Example((3, 4), Answer.FAILS, ASSERTS, "", 1.5, 0.5, 2)
    with closing(Database(path)) as db:
        journal = SweepJournal(db)
        journal.record_example(journal.record_start((3, 4), 1), example)
    with closing(Database(path)) as db:
        journal = SweepJournal(db)
        assert read_progress(db).examples == 1
        assert journal.recall((3, 4), 1) == example
        assert journal.recall((3, 4), 0) is None
        assert SweepJournal(db, "outside").recall((3, 4), 1) is None


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


# The sweep over sizes, against programs that are a line of Python.


ASSERTS_SHAPES = Signature(Kind.ASSERT, Stage.RUN, "index out of bounds")
CRASHES_SHAPES = Signature(Kind.CRASH, Stage.RUN, "SIGABRT")
DIFFERS = Signature(Kind.MISMATCH, Stage.COMPARE)

Program = Callable[..., Signature | str | None]
"""What it does at some sizes: a failure, why eager refuses, or nothing."""


def space(
    count: int,
    low: int = 2,
    high: int | None = 4096,
    conditions: tuple[str, ...] = (),
    tensors: tuple[str, ...] = (),
) -> Space:
    symbols = [Symbol(f"s{n}", low, high, 6 + n) for n in range(count)]
    return Space(tuple(symbols), (), conditions, tensors)


class ShapesRuns:
    """Runs a program, and notes at which sizes."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self.sizes: list[Sizes] = []

    def __call__(self, sizes: Sizes) -> Example:
        self.sizes.append(sizes)
        seen = self._program(*sizes)
        if isinstance(seen, str):
            return Example(sizes, Answer.INVALID, None, seen)
        return Example(sizes, Answer.FAILS if seen else Answer.PASSES, seen)


def swept_shapes(
    where: Space,
    program: Program,
    *,
    seed: int = 0,
    count: int = 200,
    cap: int = 1 << 22,
) -> tuple[list[SweepFailure], ShapesRuns]:
    runs = ShapesRuns(program)
    plan = Plan(where, cap, seed)
    return sweep(plan, Examples(runs), count=count, seed=seed), runs


def when(fails: Callable[..., bool], how: Signature = ASSERTS_SHAPES) -> Program:
    return lambda *sizes: how if fails(*sizes) else None


PLANTED = {
    "size 0 or 1": (space(1, 0), when(lambda n: n < 2), (0,), (2,)),
    "size 33 of two": (space(2), when(lambda a, b: b == 33), (2, 33), (2, 32)),
    "size 33 of four": (
        space(4),
        when(lambda a, b, c, d: c == 33),
        (2, 2, 33, 2),
        (2, 2, 32, 2),
    ),
    "from 1,025 up": (space(1), when(lambda n: n > 1024), (1025,), (1024,)),
    "from 1,025 up, unbounded": (
        space(3, high=None),
        when(lambda a, b, c: b > 1024),
        (2, 1025, 2),
        (2, 1024, 2),
    ),
    "two dims equal": (space(2), when(lambda a, b: a == b), (2, 2), (3, 2)),
    "equal from 41 on": (
        space(2),
        when(lambda a, b: a == b > 40),
        (41, 41),
        (40, 41),
    ),
    "two of three equal": (
        space(3, high=512),
        when(lambda a, b, c: b == c > 20),
        (2, 21, 21),
        (2, 20, 21),
    ),
    "odd derived dim": (space(1), when(lambda n: (3 * n + 1) % 2 == 1), (2,), (3,)),
    "two sizes of 4,096": (space(1), when(lambda n: n in (255, 257)), (255,), (254,)),
    "two of 4,096 of two": (
        space(2),
        when(lambda a, b: b in (1023, 1025)),
        (2, 1023),
        (2, 1022),
    ),
    "divisible sizes only": (
        space(1, conditions=("s0 % 8 == 0",)),
        when(lambda n: n > 500),
        (504,),
        (496,),
    ),
    "where memory is short": (
        space(2, tensors=("s0*s1*16",)),
        when(lambda a, b: b > 1024),
        (2, 1025),
        (2, 1024),
    ),
}


@pytest.mark.parametrize("name", PLANTED)
def test_sweep_finds_smallest_failing_and_nearest_passing_sizes(name: str) -> None:
    where, program, smallest, nearest = PLANTED[name]
    (found,), runs = swept_shapes(where, program, seed=len(name))
    assert (found.sizes, found.nearest) == (smallest, nearest)
    assert found.first <= 100
    assert (found.runs, found.failed) == (3, 3)
    assert len(runs.sizes) <= 300


GAPS = {
    "multiples of 3 above 6": (
        space(2, 1, 512),
        when(lambda rows, cols: rows % 3 == 0 and rows > 6),
        (9, 1),
    ),
    "multiples of 8": (space(2, 1, 512), when(lambda a, b: b % 8 == 0), (1, 8)),
    "multiples of 8 above 200": (
        space(2, 1, 512),
        when(lambda a, b: b % 8 == 0 and b > 200),
        (1, 208),
    ),
    "equal multiples of 3 above 6": (
        space(2, 1, 512),
        when(lambda a, b: a == b and b % 3 == 0 and b > 6),
        (9, 9),
    ),
}


@pytest.mark.parametrize("seed", [1, 3, 4])
@pytest.mark.parametrize("name", GAPS)
def test_sweep_crosses_passing_gaps_between_failing_sizes(name: str, seed: int) -> None:
    where, program, smallest = GAPS[name]
    (found,), runs = swept_shapes(where, program, seed=seed, count=40)
    assert found.sizes == smallest
    assert len(runs.sizes) <= 40 + 80


def test_sweep_distinguishes_failures_and_minimises_each() -> None:
    def program(a: int, b: int) -> Signature | None:
        if a > 100:
            return CRASHES_SHAPES
        return DIFFERS if b == 33 else (ASSERTS_SHAPES if a == b else None)

    found, _ = swept_shapes(space(2), program)
    smallest = {f.signature: f.sizes for f in found}
    assert smallest == {
        CRASHES_SHAPES: (101, 2),
        DIFFERS: (2, 33),
        ASSERTS_SHAPES: (2, 2),
    }


def test_sizes_rejected_by_eager_are_neither_failure_nor_pass() -> None:
    def program(a: int) -> Signature | str | None:
        if a < 9:
            return "eager: IndexError"
        return ASSERTS_SHAPES if a < 12 else None

    (found,), _ = swept_shapes(space(1), program)
    assert (found.sizes, found.nearest) == ((9,), (12,))


def test_sweep_reports_no_passing_sizes_if_all_sizes_fail() -> None:
    (found,), _ = swept_shapes(space(2), lambda a, b: ASSERTS_SHAPES, count=20)
    assert (found.sizes, found.nearest) == ((2, 2), None)


@pytest.mark.parametrize("count", [1, 2, 4])
def test_passing_program_is_run_at_the_requested_number_of_sizes(count: int) -> None:
    found, runs = swept_shapes(space(count), lambda *sizes: None, count=100)
    assert found == []
    assert len(runs.sizes) == len(set(runs.sizes)) == 100


def test_sweep_ends_when_all_sizes_have_run() -> None:
    _, runs = swept_shapes(space(2, 2, 6), lambda *sizes: None)
    assert sorted(runs.sizes) == [(a, b) for a in range(2, 7) for b in range(2, 7)]


def test_sweep_stays_within_declared_sizes_and_memory() -> None:
    where = space(2, conditions=("s0 <= s1", "s1 % 3 == 0"), tensors=("s0*s1",))
    _, runs = swept_shapes(where, lambda *sizes: None, cap=5000)
    assert len(runs.sizes) > 50
    assert all(a <= b and b % 3 == 0 and a * b <= 5000 for a, b in runs.sizes)


def test_seed_determines_the_sweep() -> None:
    program = when(lambda a, b: a > 700 and b % 5 == 1)
    first, again, other = (
        swept_shapes(space(2), program, seed=s)[1].sizes for s in (4, 4, 5)
    )
    assert first == again != other


SCRIPT = """
from shrinkfx.failure.signature import Kind, Signature, Stage
from shrinkfx.program.sizes import Space, Symbol
from shrinkfx.sweep.examples import Answer, Example, Examples
from shrinkfx.sweep.minimise import Grid, find_smaller_beyond_passes
from shrinkfx.sweep.hunt import Plan, sweep

def run(sizes):
    fails = Signature(Kind.ASSERT, Stage.RUN) if sizes[0] == 33 else None
    return Example(sizes, Answer.FAILS if fails else Answer.PASSES, fails)

space = Space((Symbol("a", 2, 4096, 6), Symbol("b", 2, 4096, 6)))
(found,) = sweep(Plan(space, 1 << 30, 0), Examples(run), count=200, seed=0)
assert found.sizes == (33, 2)
"""


def test_sweep_creates_no_folder_and_prints_nothing(tmp_path: Path) -> None:
    """In a process of its own: Hypothesis chooses its folder when it is imported."""
    paths = [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert list(tmp_path.iterdir()) == []


@st.composite
def predicates(draw: st.DrawFn) -> tuple[Space, Callable[..., bool]]:
    """Draw where 1 to 4 sizes fail: from bounds up, in boxes, or scattered."""
    count = draw(st.integers(1, 4))
    low, high = draw(st.integers(0, 2)), draw(st.integers(8, 300))
    sizes = st.tuples(*[st.integers(low, high)] * count)
    bounds = draw(st.lists(sizes, min_size=1, max_size=3))
    way = draw(st.sampled_from(["above", "near", "scattered"]))
    salt = draw(st.integers(0, 1000))

    def fails(*at: int) -> bool:
        if way == "scattered":
            return random.Random(str((salt, at))).random() < 0.2
        gaps = [[s - b for s, b in zip(at, bound, strict=True)] for bound in bounds]
        if way == "above":
            return any(min(gap) >= 0 for gap in gaps)
        return any(sum(map(abs, gap)) <= 40 for gap in gaps)

    return space(count, low, high), fails


def rank(where: Space) -> Callable[[Sizes], tuple[int, Sizes]]:
    """Order sizes: fewest away from their smallest, then the smallest sum."""
    low = [symbol.low for symbol in where.symbols]
    return lambda at: (
        sum(a > b for a, b in zip(at, low, strict=True)),
        (sum(at), *at),
    )


FEW = settings().max_examples * 2 // 5
"""Each of these is a whole sweep."""


@settings(max_examples=FEW, suppress_health_check=list(HealthCheck))
@given(predicates(), st.integers(0, 1000))
def test_shrunk_sizes_are_locally_minimal(
    drawn: tuple[Space, Callable[..., bool]], seed: int
) -> None:
    where, fails = drawn
    found, runs = swept_shapes(where, when(fails), seed=seed, count=40)
    assert bool(found) == any(fails(*sizes) for sizes in runs.sizes)
    for each in found:
        assert fails(*each.sizes)
        costs = map(rank(where), filter(lambda at: fails(*at), runs.sizes))
        assert rank(where)(each.sizes) == min(costs)
        for index, size in enumerate(each.sizes):
            low = where.symbols[index].low
            for smaller in {low, size - 1} if size > low else set():
                at = (*each.sizes[:index], smaller, *each.sizes[index + 1 :])
                assert not fails(*at)
        assert each.nearest is None or not fails(*each.nearest)
