"""Repairs of an invalid statement: a bounded number, the likely ones first.

    x: (2, 12, 32) -> (2, 4, 32)        x.view([24, 32])  ->  x.view([8, 32])

A number that equals a replaced size becomes the new size; multiples and divisors are
scaled alike; one number of a shape may be computed from the others.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, islice

from shrinkfx.program.listing.changes import Change
from shrinkfx.worker.listing.knobs import Knob, Pair, apply_replacements, scale_number

_MOST_NEAR = 40
_MOST_FAR = 60
_MOST_EACH = 8
"""Maximal number of repairs: of the statement, of all before it, of each of these."""

_SHAPES = frozenset({"size", "shape", "split_sizes"})
"""Arguments whose product or sum equals that of the operand's sizes."""

Repair = tuple[Change, ...]


@dataclass(frozen=True)
class Replacements:
    """The sizes and dtypes that have been replaced, as far as known.

    Attributes:
        sizes: old and new sizes; those nearest to the statement last, because they
            follow from the others.
        dtypes: old and new dtypes, as statements write them.
        totals: the current element counts and sizes of the operands.
    """

    sizes: tuple[Pair, ...]
    dtypes: tuple[tuple[str, str], ...]
    totals: tuple[int, ...]

    @property
    def exact(self) -> dict[int | str, int | str]:
        """The new value of each old value; of several the first."""
        return dict([*reversed(self.sizes), *reversed(self.dtypes)])


def propose_repairs(
    near: Sequence[Knob], far: Sequence[Sequence[Knob]], replaced: Replacements
) -> Iterator[Repair]:
    """Yield repairs, each once.

    Args:
        near: knobs of the invalid statement.
        far: knobs of each earlier statement, the nearest first.
    """
    before = [knob for knobs in far for knob in knobs]
    chain = [
        islice(_near(near, replaced), _MOST_NEAR),
        iter(
            [
                apply_replacements(before, replaced.exact),
                apply_replacements([*near, *before], replaced.exact),
            ]
        ),
        islice(_far(far, replaced), _MOST_FAR),
        islice(_guesses(near, replaced), _MOST_NEAR),
    ]
    seen: set[Repair] = {()}
    for repair in (repair for part in chain for repair in part):
        if repair not in seen:
            seen.add(repair)
            yield repair


def _near(knobs: Sequence[Knob], replaced: Replacements) -> Iterator[Repair]:
    yield apply_replacements(knobs, replaced.exact)
    singles = list(_singles(knobs, replaced.sizes))
    yield from ((change,) for _, change in singles)
    yield _all_following(knobs, replaced.sizes)
    shape = [k for k in knobs if k.argument in _SHAPES and isinstance(k.now, int)]
    yield from _left_over(shape, replaced.totals)
    for (one, first), (other, second) in combinations(singles, 2):
        if one is not other:
            yield first, second


def _far(groups: Sequence[Sequence[Knob]], replaced: Replacements) -> Iterator[Repair]:
    for knobs in groups:
        yield apply_replacements(knobs, replaced.exact)
        singles = ((change,) for _, change in _singles(knobs, replaced.sizes))
        yield from islice(singles, _MOST_EACH)
        yield _all_following(knobs, replaced.sizes)


def _guesses(knobs: Sequence[Knob], replaced: Replacements) -> Iterator[Repair]:
    """Try 1, the new sizes, the last valid indices, and 0."""
    ends = {n for _, new in replaced.sizes for n in (new, new - 1) if n > 0}
    for knob in knobs:
        if isinstance(knob.now, int):
            for number in [1, *sorted(ends, reverse=True), 0]:
                if number < abs(knob.now):
                    yield (knob.change_to(number),)


def _singles(
    knobs: Iterable[Knob], pairs: Sequence[Pair]
) -> Iterator[tuple[Knob, Change]]:
    numbers = [knob for knob in knobs if isinstance(knob.now, int)]
    for old, new in pairs:
        for knob in numbers:
            if knob.now == old != new:
                yield knob, knob.change_to(new)
    for knob in numbers:
        for number in scale_number(int(knob.now), pairs):
            yield knob, knob.change_to(number)


def _all_following(knobs: Iterable[Knob], pairs: Sequence[Pair]) -> Repair:
    turned = []
    for knob in knobs:
        if isinstance(knob.now, int):
            turned += [
                knob.change_to(n) for n in islice(scale_number(knob.now, pairs), 1)
            ]
    return tuple(turned)


def _left_over(shape: Sequence[Knob], totals: Sequence[int]) -> Iterator[Repair]:
    """Compute one number of a shape from the others, or set all but one to 1."""
    now = [int(knob.now) for knob in shape]
    for total in totals:
        for place, knob in enumerate(shape):
            rest = math.prod(now[:place] + now[place + 1 :])
            if rest > 0 and total % rest == 0 and total // rest != knob.now:
                yield (knob.change_to(total // rest),)
    ones = tuple(knob.change_to(1) for knob in shape[:-1] if knob.now != 1)
    yield from _solve_with_one(shape, now, totals)
    if len(shape) > 2:  # e.g. a prime total for [2, 4, 4]
        yield from ((*ones, shape[-1].change_to(total)) for total in totals)
    for total in totals:
        if shape and (last := total - len(shape) + 1) > 0:
            yield (*ones, shape[-1].change_to(last))


def _solve_with_one(
    shape: Sequence[Knob], now: Sequence[int], totals: Sequence[int]
) -> Iterator[Repair]:
    """Set one number of a shape to 1, and compute another.

    Numbers that are sizes of an operand are changed last.
    """
    pairs = ((i, j) for i in range(len(now)) for j in range(len(now)) if i != j)
    by_stay = sorted(pairs, key=lambda p: (now[p[0]] in totals) + (now[p[1]] in totals))
    for total in totals:
        for one, place in by_stay:
            rest = math.prod(n for i, n in enumerate(now) if i not in (one, place))
            if rest > 0 and total % rest == 0:
                yield shape[one].change_to(1), shape[place].change_to(total // rest)
