"""From failing sizes that a sweep has seen to what is reported of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from shrinkfx.program.sizes import Sizes
from shrinkfx.sweep.boundary import Grid, leap, lower, nearest_pass
from shrinkfx.sweep.examples import Answer, Examples, SweepFailure

CONFIRMATIONS = 2
"""Further runs of the smallest failing sizes."""

LEAPS = 16
"""Runs after which nothing is tried any more beyond what makes a local minimum."""


def minimise(grid: Grid, examples: Examples, number: int) -> SweepFailure:
    """Finish what Hypothesis has begun: a local minimum, confirmed, and a pass."""

    def passes(positions: Sizes) -> bool:
        return examples.ask(grid.sizes(positions)).answer is Answer.PASSES

    best = _minimum(grid, examples, number)
    sizes = grid.sizes(best)
    again = [examples.again(sizes, n + 1) for n in range(CONFIRMATIONS)]
    known = [grid.positions(e.sizes) for e in examples.passing()]
    near = nearest_pass(best, passes, known, grid)
    return replace(
        _found(sizes, examples, number),
        nearest=None if near is None else grid.sizes(near),
        runs=1 + len(again),
        failed=1 + sum(e.failure == number for e in again),
    )


def _minimum(grid: Grid, examples: Examples, number: int) -> Sizes:
    """Find positions that fail with none below, by single steps nor by a leap."""

    def fails(positions: Sizes) -> bool:
        return examples.ask(grid.sizes(positions)).failure == number

    def leaps(positions: Sizes) -> bool:
        return len(examples.all()) < limit and fails(positions)

    best = lower(grid.positions(_smallest(grid, examples, number)), fails, grid)
    limit = len(examples.all()) + LEAPS
    while True:
        known = [grid.positions(e.sizes) for e in examples.failing(number)]
        found = leap(best, known, leaps, grid)
        if found is None:
            return best
        best = lower(found, fails, grid)


def so_far(grid: Grid, examples: Examples) -> list[SweepFailure]:
    """Gather what a sweep has seen that was ended early: smallest sizes as they are."""
    return [
        _found(_smallest(grid, examples, number), examples, number)
        for number in examples.failures()
    ]


def minimise_outside(
    sizes: Sequence[Sizes], examples: Examples, inside: Examples, grid: Grid
) -> list[SweepFailure]:
    """Run sizes that are not declared; each failure there is a missing guard."""
    for at in sizes:
        examples.ask(at)
    found = []
    for number in examples.failures():
        smallest = examples.failing(number)[-1].sizes
        within = grid.sizes(grid.positions(smallest))
        passes = inside.ask(within).answer is Answer.PASSES
        found.append(
            replace(
                _found(smallest, examples, number),
                nearest=within if passes else None,
                missing_guard=True,
            )
        )
    return found


def is_smallest(
    found: SweepFailure, grid: Grid, examples: Examples, number: int
) -> bool:
    """Tell whether none of the sizes that were run is smaller and fails so."""
    return found.sizes == _smallest(grid, examples, number)


def _smallest(grid: Grid, examples: Examples, number: int) -> Sizes:
    return min(
        (e.sizes for e in examples.failing(number)),
        key=lambda sizes: grid.cost(grid.positions(sizes)),
    )


def _found(sizes: Sizes, examples: Examples, number: int) -> SweepFailure:
    signature = examples.ask(sizes).signature
    assert signature is not None
    first, failing = examples.first(number), len(examples.failing(number))
    return SweepFailure(sizes, signature, None, first, failing)
