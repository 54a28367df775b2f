"""The dynamic sweep: Hypothesis searches for sizes at which a program fails.

Hypothesis draws sizes as positions among those that a symbol may have; 0 is the
smallest size. A drawn example is a sequence of choices::

    row   away k   away span k   away ...

``row`` 0 leaves the other choices free. Each other ``row`` is planned, so that each
edge size of each symbol comes once, mixed across symbols. Hypothesis repeats no choice
whose outcomes are all known: after about sixty examples the plan is exhausted, and the
further examples are free. A symbol that is not ``away`` has its smallest size and draws
nothing more. So simpler examples are shorter, and shrinking leaves the fewest symbols
above their smallest size. ``k`` has the same meaning in a planned row and in each span,
so a failure found there shrinks like any other.
"""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property, lru_cache

import hypothesis
from hypothesis import HealthCheck, Phase, Verbosity, settings
from hypothesis import strategies as st
from hypothesis.configuration import set_hypothesis_home_dir
from hypothesis.errors import Unsatisfiable

from shrinkfx.program.sizes import Sizes, Space
from shrinkfx.sweep.examples import Answer, Example, Examples, SweepFailure
from shrinkfx.sweep.minimise import Grid, is_smallest, minimise
from shrinkfx.system import scratch

_BLOCKS = (16, 32, 64, 128, 256, 1024)
_PRIMES = (3, 5, 7, 11, 13, 17, 31, 61, 127, 251, 509, 1021, 2039, 4093)
_EQUAL = (0, 1, 2, 3, 16, 33, 127, 1024)
"""Sizes that all symbols take at once in some of the planned rows."""

_FULL_WEIGHT = 8
"""The weight of the span of all sizes of a symbol; any other span has weight 1."""


class Plan:
    """The sizes that are tried first, and the spans from which free sizes are drawn."""

    def __init__(self, space: Space, max_elements: int, seed: int) -> None:
        self.space = space
        self.max_elements = max_elements
        self.grid = Grid(space, max_elements)
        self._random = random.Random(seed)

    @cached_property
    def rows(self) -> list[Sizes]:
        """Return the positions of planned examples; edges are shuffled per symbol."""
        allowed, space = self.space.allowed, self.space
        rows = [self.grid.positions(space.exported)]
        rows.append(tuple(len(sizes) - 1 for sizes in allowed))
        rows += [self.grid.positions((size,) * len(allowed)) for size in _EQUAL]
        columns = [list(edges) for edges in self.edges]
        longest = max(map(len, columns))
        for column in columns:
            self._random.shuffle(column)
            column += self._random.choices(column, k=longest - len(column))
        return list(dict.fromkeys([*rows, *zip(*columns, strict=True)]))

    @cached_property
    def edges(self) -> list[list[int]]:
        """Return, by symbol, the positions of sizes at which programs tend to fail."""
        return [self._edges(index) for index in range(len(self.space.symbols))]

    def _edges(self, index: int) -> list[int]:
        symbol, allowed = self.space.symbols[index], self.space.allowed[index]
        powers = [1 << n for n in range(allowed[-1].bit_length())]
        sizes = {0, 1, 2, symbol.exported - 1, symbol.exported, symbol.exported + 1}
        sizes |= {*_PRIMES, *powers}
        sizes |= {block + by for block in _BLOCKS for by in (-1, 0, 1)}
        last = len(allowed) - 1
        places = {bisect_left(allowed, size) for size in sizes} | {0, 1, last - 1, last}
        return sorted(position for position in places if 0 <= position <= last)

    def spans(self, index: int, top: int, chosen: Sequence[int]) -> list[Span]:
        """Return ranges of positions above 0 to draw from; the first is all of them."""
        spans = [(1, top)] * _FULL_WEIGHT
        octaves = range(top.bit_length())
        spans += [(1 << n, min(top, (2 << n) - 1)) for n in octaves] * 2
        allowed = self.space.allowed
        pairs = zip(chosen, allowed, strict=False)
        others = [bisect_left(allowed[index], sizes[k]) for k, sizes in pairs]
        single = (*self.edges[index], *others, *others)
        spans += [(k, k) for k in single if 0 < k <= top]
        return spans


Span = tuple[int, int]


@st.composite
def draw_positions(draw: st.DrawFn, plan: Plan) -> Sizes:
    """Draw the positions of all symbols, as the module's docstring describes."""
    row = draw(st.integers(0, len(plan.rows)))
    chosen: list[int] = []
    for index in range(len(plan.space.symbols)):
        top = plan.grid.top(index, tuple(chosen))
        if row:
            k = min(plan.rows[row - 1][index], top)
            away, spans = (min(1, k),) * 2, [(k, k)]
        else:
            away, spans = (0, min(1, top)), []
        if not draw(st.integers(*away)):
            chosen.append(0)
            continue
        spans = spans or plan.spans(index, top, chosen)
        low, high = spans[draw(st.integers(0, len(spans) - 1))]
        chosen.append(draw(st.integers(low, high)))
    return tuple(chosen)


def sweep(
    plan: Plan, examples: Examples, *, count: int, seed: int
) -> list[SweepFailure]:
    """Search for failures in ``count`` examples; shrink each to its smallest sizes.

    Each round searches for one more failure. It draws the examples of the previous
    round again, which costs nothing, because no sizes are run twice.
    """
    known: set[int] = set()
    while (number := _round(plan, examples, known, count, seed)) is not None:
        known.add(number)
    failures: dict[int, SweepFailure] = {}
    # The search for a pass, or for another failure's minimum, may find smaller sizes.
    while stale := [
        number
        for number in sorted(known)
        if number not in failures
        or not is_smallest(failures[number], plan.grid, examples, number)
    ]:
        failures[stale[0]] = minimise(plan.grid, examples, stale[0])
    return [failures[number] for number in sorted(known)]


def _round(
    plan: Plan, examples: Examples, known: set[int], count: int, seed: int
) -> int | None:
    """Find and shrink one failure that is not known; return its number, or None."""
    target, tried = _Target(known), set[Sizes]()

    def test(positions: Sizes) -> None:
        if not plan.grid.admits(positions):
            hypothesis.reject()
        tried.add(positions)
        if len(tried) > count and target.number < 0:
            raise _Enough
        try:
            example = examples.ask(plan.grid.sizes(positions))
        except Exception as error:
            raise _Stop(error) from error  # Hypothesis would take it for a failure
        if target.is_hit(example):
            raise _failure(target.number)

    try:
        # Hypothesis draws some examples twice.
        _run_hypothesis(draw_positions(plan), test, 4 * count, seed)
    except _Stop as stop:
        raise stop.reason from None
    except _Enough:
        return None
    except Failure:
        return target.number
    return None


class Failure(Exception):
    """Some sizes fail. Hypothesis tells failures apart by their subclasses of this."""


class _Stop(BaseException):
    """An example has no answer. Hypothesis does not catch a BaseException."""

    def __init__(self, reason: Exception) -> None:
        self.reason = reason


class _Enough(BaseException):
    """All examples of a round were drawn, and none fails."""


@lru_cache(None)
def _failure(number: int) -> type[Failure]:
    return type(f"Failure{number}", (Failure,), {})


class _Target:
    """The first new failure of a round; all other failures count as passes."""

    def __init__(self, known: set[int]) -> None:
        self._known = known
        self.number = -1

    def is_hit(self, example: Example) -> bool:
        if example.answer is not Answer.FAILS or example.failure in self._known:
            return False
        if self.number < 0:
            self.number = example.failure
        return example.failure == self.number


def _run_hypothesis(
    strategy: st.SearchStrategy[Sizes],
    test: Callable[[Sizes], None],
    count: int,
    seed: int,
) -> None:
    """Let Hypothesis draw examples, find a failure and shrink it; raise the smallest.

    It searches for one failure at a time. With several, Hypothesis would continue for
    ten seconds of wall time, so the same seed would not give the same sweep.
    """

    @hypothesis.seed(seed)
    @settings(
        backend="hypothesis",
        database=None,
        deadline=None,
        derandomize=False,
        max_examples=count,
        phases=(Phase.generate, Phase.shrink),
        print_blob=False,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
        verbosity=Verbosity.quiet,
    )
    @hypothesis.given(strategy)
    def run(positions: Sizes) -> None:
        test(positions)

    with _hypothesis_home_in_scratch():
        try:
            run()
        except Unsatisfiable:
            return  # the declared conditions contradict each other


@contextmanager
def _hypothesis_home_in_scratch() -> Iterator[None]:
    """Move the folder of Hypothesis to scratch, so that it writes none for the user."""
    with scratch.make_scratch_folder("hypothesis") as folder:
        set_hypothesis_home_dir(folder)
        try:
            yield
        finally:
            set_hypothesis_home_dir(None)
