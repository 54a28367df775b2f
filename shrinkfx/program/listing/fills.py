"""Plainer fills for a tensor, the plainest that is likely to do first."""

from __future__ import annotations

import cmath
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from shrinkfx.program.listing.parts import cuts
from shrinkfx.program.listing.recipes import (
    Constant,
    Counted,
    Fill,
    Number,
    Opaque,
    Recipe,
    Saved,
    Seeded,
    Sparse,
)

Elements = tuple[tuple[int, Number], ...]
"""Places of memory, and what is there."""

_ALONE = 8
"""Of so few elements each is left out alone."""


def plainer_fills(recipe: Recipe) -> list[Fill]:
    """List the formulas that are plainer than what fills a tensor now.

    Ones for numbers, since zeros hide what is multiplied; zeros for integers, since
    they may be indices. What is counted tells elements apart. Of what is no tensor
    nothing is known.
    """
    if isinstance(recipe.fill, Opaque):
        return []
    fills: list[Fill] = [Constant(1.0), Counted(), Constant(0.0), Seeded("randn")]
    if recipe.dtype == "bool":
        fills = [Constant(True), Constant(False), Seeded("randint", 0, 2)]
    elif "int" in recipe.dtype:
        fills = [Constant(0), Counted(), Constant(1), Seeded("randint", 0, 2)]
    return [fill for fill in fills if _is_plainer(fill, recipe)]


def fewer_elements(recipe: Recipe) -> Iterator[Fill]:
    """Yield fills with fewer of the elements of a sparse one: few questions first.

    Of what a file holds nothing is known here; it may be that one is not finite.
    """
    fills: Iterator[Fill] = iter(())
    match recipe.fill:
        case Sparse(base, elements):
            fills = _fewer(base, elements)
        case Saved() if "float" in recipe.dtype:
            fills = (Sparse(1.0, ((0, odd),)) for odd in (math.nan, math.inf))
    yield from (fill for fill in dict.fromkeys(fills) if _is_plainer(fill, recipe))


def _is_plainer(fill: Fill, recipe: Recipe) -> bool:
    return replace(recipe, fill=fill).plainness < recipe.plainness


def _fewer(base: Number, elements: Elements) -> Iterator[Fill]:
    """Leave the telling ones, at the front where sizes can fall; then delta debugging:
    halves, then all but a quarter or an eighth, then all but one."""
    plain = base if base in (0, 1) else type(base)(isinstance(base, (float, complex)))
    for some in _telling(elements):
        yield Sparse(plain, _at_front(some))
        yield Sparse(plain, some)
        yield Constant(some[0][1])
    count = len(elements)
    if count > 1:
        for start, stop in cuts(count, 2):
            yield Sparse(base, elements[start:stop])
        for parts in (4, 8) if count > _ALONE else (count,):
            for start, stop in cuts(count, parts):
                yield Sparse(base, elements[:start] + elements[stop:])
    yield Sparse(plain, elements)
    yield Sparse(base, _at_front(elements))
    ones = ((p, type(v)(1) if cmath.isfinite(v) else v) for p, v in elements)
    yield Sparse(base, (*ones,))


def _telling(elements: Elements) -> Iterator[Elements]:
    """Choose elements that may well be to blame: what is not finite, or the biggest."""
    if odd := tuple(pair for pair in elements if not cmath.isfinite(pair[1])):
        yield odd[:1]
        yield odd
    else:
        yield (max(elements, key=lambda pair: abs(pair[1])),)


def _at_front(elements: Sequence[tuple[int, Number]]) -> Elements:
    return tuple((place, value) for place, (_, value) in enumerate(elements))
