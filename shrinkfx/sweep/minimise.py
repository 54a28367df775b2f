"""Minimize the failing sizes of a sweep, and collect what is reported about them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from shrinkfx.program.sizes import Sizes
from shrinkfx.sweep.boundary import (
    Grid,
    find_local_minimum,
    find_smaller_beyond_passes,
    nearest_pass,
)
from shrinkfx.sweep.examples import Answer, Examples, SweepFailure

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
