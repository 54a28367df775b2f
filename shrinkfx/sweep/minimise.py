"""Minimize failing sizes: the smallest that still fail, and the nearest that pass."""

from __future__ import annotations

import heapq
import itertools
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache

from shrinkfx.program.sizes import Sizes, Space
from shrinkfx.sweep.examples import Answer, Examples, SweepFailure

Test = Callable[[Sizes], bool]

NEAR = 16
"""Number of single steps that are tried in each direction."""

STRIDES = (*range(2, 9), 16, 32, 64)
"""Strides to skip passing sizes, because a program may fail only at multiples of a
number, often of a block size.
"""

SEEN = 8
"""Number of values to take from other failing sizes, the smallest first."""


class Grid:
    """The positions of a space whose inputs fit into memory."""

    def __init__(self, space: Space, max_elements: int) -> None:
        self._space = space
        self._max_elements = max_elements
        self.top = lru_cache(4096)(self._top)

    def sizes(self, positions: Sizes) -> Sizes:
        pairs = zip(self._space.allowed, positions, strict=True)
        return tuple(allowed[k] for allowed, k in pairs)

    def positions(self, sizes: Sizes) -> Sizes:
        """Return the positions of sizes, or of the next larger allowed ones."""
        pairs = zip(self._space.allowed, sizes, strict=True)
        return tuple(min(bisect_left(a, s), len(a) - 1) for a, s in pairs)

    def _top(self, index: int, chosen: Sizes) -> int:
        """Return a symbol's last position that fits, all later symbols at their
        least.
        """
        rest = (0,) * (len(self._space.symbols) - index - 1)
        end = len(self._space.allowed[index])
        return _bisect(0, end, lambda k: self._fits((*chosen, k, *rest)))

    def _fits(self, positions: Sizes) -> bool:
        return self._space.elements(self.sizes(positions)) <= self._max_elements

    def admits(self, positions: Sizes) -> bool:
        """Return whether the positions are valid sizes, and whether those fit."""
        lengths = map(len, self._space.allowed)
        inside = all(0 <= k < n for k, n in zip(positions, lengths, strict=True))
        return (
            inside
            and self._space.admits(self.sizes(positions))
            and self._fits(positions)
        )

    def cost(self, positions: Sizes) -> tuple[int, int, Sizes]:
        """Return a sort key: symbols above their smallest size first, then sizes."""
        return sum(k > 0 for k in positions), sum(positions), positions


def find_local_minimum(start: Sizes, fails: Test, grid: Grid) -> Sizes:
    """Return a local minimum: lower sizes until no smaller ones nearby fail.

    In a local minimum none of these fails: one symbol at its smallest size or one less,
    two symbols lowered by the same number, all symbols of equal size lowered alike.
    """
    current = start
    while True:
        lower = next(_yield_lower(current, fails, grid), None)
        if lower is None:
            return current
        current = lower


def find_smaller_beyond_passes(
    start: Sizes, known: Sequence[Sizes], fails: Test, grid: Grid
) -> Sizes | None:
    """Find smaller failing sizes beyond some that pass; return None if there are none.

    Each symbol, and each group of equal ones at once, takes values from other failing
    sizes, is divided, or is lowered in strides.

    Args:
        known: all failing sizes that are known.
    """

    def still(tried: Sizes) -> bool:
        return grid.admits(tried) and fails(tried)

    smaller = next(filter(still, _borrowed(start, known, grid)), None)
    if smaller is not None:
        return smaller
    away = [(index,) for index, k in enumerate(start) if k]
    groups = [
        *away,
        *(same for same in _equal(start, grid) if all(start[i] for i in same)),
    ]
    divided = (_divided(start, group, by, grid) for group in groups for by in (2, 4))
    smaller = next((k for k in divided if k != start and still(k)), None)
    if smaller is not None:
        return smaller
    for stride, group in itertools.product(STRIDES, groups):
        by = _strides(start, group, stride, still) * stride
        if by:
            return _less(start, group, by)
    return None


def _borrowed(start: Sizes, known: Sequence[Sizes], grid: Grid) -> list[Sizes]:
    """Return smaller sizes with one value from other failing sizes.

    The other symbols keep their sizes, or have their smallest.
    """
    lowest = (0,) * len(start)
    tried = {
        _with(rest, index, sizes[index])
        for sizes in known
        for index, k in enumerate(start)
        if 0 < sizes[index] <= k
        for rest in (start, lowest)
    }
    smaller = (each for each in tried if grid.cost(each) < grid.cost(start))
    return heapq.nsmallest(SEEN, smaller, key=grid.cost)


def _divided(start: Sizes, group: Sequence[int], by: int, grid: Grid) -> Sizes:
    """Divide sizes, not positions, because half of a power of two is a power of two."""
    sizes = enumerate(grid.sizes(start))
    return grid.positions(tuple(s // by if i in group else s for i, s in sizes))


def _strides(start: Sizes, group: Sequence[int], stride: int, still: Test) -> int:
    """Return by how many strides a group can be lowered; 0 if one stride passes."""
    many = min(start[index] for index in group) // stride
    if not many or not still(_less(start, group, stride)):
        return 0
    return _bisect(1, many + 1, lambda n: still(_less(start, group, n * stride)))


def _equal(positions: Sizes, grid: Grid) -> list[tuple[int, ...]]:
    """Return the groups of symbols that have the same size."""
    equal: dict[int, list[int]] = {}
    for index, size in enumerate(grid.sizes(positions)):
        equal.setdefault(size, []).append(index)
    return [tuple(same) for same in equal.values() if len(same) > 1]


def _yield_lower(positions: Sizes, fails: Test, grid: Grid) -> Iterator[Sizes]:
    away = [index for index, k in enumerate(positions) if k]
    groups: list[tuple[int, ...]] = [(index,) for index in away]
    groups += itertools.combinations(away, 2)
    groups += [same for same in _equal(positions, grid) if len(same) > 2]

    def still(lowered: Sizes) -> bool:
        return grid.admits(lowered) and fails(lowered)

    for group in groups:
        limit = min(positions[index] for index in group)
        by = _most(positions, group, limit, still) if limit else 0
        if by:
            yield _less(positions, group, by)


def _most(positions: Sizes, group: Sequence[int], limit: int, still: Test) -> int:
    """Return by how much a group of symbols can be lowered at once."""
    if still(_less(positions, group, limit)):
        return limit
    # A single symbol may fail again at smaller sizes; groups seldom do.
    if len(group) > 1 and not still(_less(positions, group, 1)):
        return 0
    return _bisect(0, limit, lambda by: still(_less(positions, group, by)))


def _less(positions: Sizes, group: Sequence[int], by: int) -> Sizes:
    return tuple(k - by if i in group else k for i, k in enumerate(positions))


def _boundary(
    inside: Sizes, outside: Sizes, index: int, holds: Test, grid: Grid
) -> int:
    """Bisect between two positions for the last one at which a test holds."""

    def still(k: int) -> bool:
        tried = _with(inside, index, k)
        return grid.admits(tried) and holds(tried)

    return _bisect(inside[index], outside[index], still)


def _bisect(good: int, bad: int, holds: Callable[[int], bool]) -> int:
    """Bisect between two numbers for the last one at which a test holds.

    Args:
        good: a number at which it holds.
        bad: a number at which it does not, larger or smaller.
    """
    while abs(good - bad) > 1:
        middle = (good + bad) // 2
        if holds(middle):
            good = middle
        else:
            bad = middle
    return good


def nearest_pass(
    failing: Sizes, passes: Test, known: Sequence[Sizes], grid: Grid
) -> Sizes | None:
    """Return the nearest passing sizes: fewest symbols changed, then smallest distance.

    The result is exact within ``NEAR`` steps. Beyond, it is only known that sizes next
    to it fail.

    Args:
        known: all passing sizes that are known.
    """
    for step in range(1, NEAR + 1):
        for index, k in enumerate(failing):
            for moved in (k - step, k + step):
                tried = _with(failing, index, moved)
                if grid.admits(tried) and passes(tried):
                    return tried
    far = [
        _approached(failing, tried, passes, grid)
        for tried in _farther(failing, grid)
        if passes(tried)
    ] or [_approached(failing, k, passes, grid) for k in _best(failing, known)]
    return min(far, key=lambda passing: _distance(failing, passing), default=None)


def _farther(failing: Sizes, grid: Grid) -> Iterator[Sizes]:
    """Yield sizes away from failing ones along each symbol, in steps that double."""
    for index, k in enumerate(failing):
        top = grid.top(index, failing[:index])
        for n in range(NEAR.bit_length(), max(top, 1).bit_length() + 1):
            for moved in (max(0, k - (1 << n)), min(top, k + (1 << n))):
                tried = _with(failing, index, moved)
                if moved != k and grid.admits(tried):
                    yield tried


def _best(failing: Sizes, known: Sequence[Sizes]) -> list[Sizes]:
    return sorted(known, key=lambda passing: _distance(failing, passing))[:1]


def _approached(failing: Sizes, sizes: Sizes, passes: Test, grid: Grid) -> Sizes:
    """Move each symbol back to its failing size, or as near as still passes."""
    for index in range(len(failing)):
        back = _with(sizes, index, failing[index])
        if sizes == back:
            continue
        if grid.admits(back) and passes(back):
            sizes = back
        else:
            sizes = _with(sizes, index, _boundary(sizes, back, index, passes, grid))
    return sizes


def _distance(failing: Sizes, sizes: Sizes) -> tuple[int, int, Sizes]:
    gaps = [abs(a - b) for a, b in zip(failing, sizes, strict=True)]
    return sum(gap > 0 for gap in gaps), sum(gaps), sizes


def _with(positions: Sizes, index: int, k: int) -> Sizes:
    return (*positions[:index], k, *positions[index + 1 :])


CONFIRMATIONS = 2
"""Number of further runs of the smallest failing sizes."""

LEAPS = 16
"""Number of runs after a local minimum that may be spent on leaps to smaller sizes."""


def minimise(grid: Grid, examples: Examples, number: int) -> SweepFailure:
    """Find a local minimum, confirm it with further runs, and find the nearest pass."""

    def passes(positions: Sizes) -> bool:
        return examples.ask(grid.sizes(positions)).answer is Answer.PASSES

    lowest = _minimum(grid, examples, number)
    sizes = grid.sizes(lowest)
    again = [examples.run_attempt(sizes, n + 1) for n in range(CONFIRMATIONS)]
    known = [grid.positions(e.sizes) for e in examples.passing()]
    near = nearest_pass(lowest, passes, known, grid)
    return replace(
        _make_sweep_failure(sizes, examples, number),
        nearest=None if near is None else grid.sizes(near),
        runs=1 + len(again),
        failed=1 + sum(e.failure == number for e in again),
    )


def _minimum(grid: Grid, examples: Examples, number: int) -> Sizes:
    """Return failing positions from which neither single steps nor a leap go lower."""

    def fails(positions: Sizes) -> bool:
        return examples.ask(grid.sizes(positions)).failure == number

    def leaps(positions: Sizes) -> bool:
        return len(examples.all()) < limit and fails(positions)

    lowest = find_local_minimum(
        grid.positions(_smallest(grid, examples, number)), fails, grid
    )
    limit = len(examples.all()) + LEAPS
    while True:
        known = [grid.positions(e.sizes) for e in examples.failing(number)]
        lower = find_smaller_beyond_passes(lowest, known, leaps, grid)
        if lower is None:
            return lowest
        lowest = find_local_minimum(lower, fails, grid)


def collect_failures(grid: Grid, examples: Examples) -> list[SweepFailure]:
    """Return the failures of a sweep that was stopped, at their smallest sizes."""
    return [
        _make_sweep_failure(_smallest(grid, examples, number), examples, number)
        for number in examples.failures()
    ]


def minimise_outside(
    sizes: Sequence[Sizes], examples: Examples, inside: Examples, grid: Grid
) -> list[SweepFailure]:
    """Run sizes outside of the declared ranges; each failure is a missing guard."""
    for at in sizes:
        examples.ask(at)
    failures = []
    for number in examples.failures():
        smallest = examples.failing(number)[-1].sizes
        within = grid.sizes(grid.positions(smallest))
        passes = inside.ask(within).answer is Answer.PASSES
        failures.append(
            replace(
                _make_sweep_failure(smallest, examples, number),
                nearest=within if passes else None,
                missing_guard=True,
            )
        )
    return failures


def is_smallest(
    failure: SweepFailure, grid: Grid, examples: Examples, number: int
) -> bool:
    """Return whether none of the sizes that were run is smaller and fails alike."""
    return failure.sizes == _smallest(grid, examples, number)


def _smallest(grid: Grid, examples: Examples, number: int) -> Sizes:
    return min(
        (e.sizes for e in examples.failing(number)),
        key=lambda sizes: grid.cost(grid.positions(sizes)),
    )


def _make_sweep_failure(sizes: Sizes, examples: Examples, number: int) -> SweepFailure:
    signature = examples.ask(sizes).signature
    assert signature is not None
    first, failing = examples.first(number), len(examples.failing(number))
    return SweepFailure(sizes, signature, None, first, failing)
