"""Simpler initializers for a tensor, the simplest that is likely to work first."""

from __future__ import annotations

import cmath
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, combinations

from shrinkfx.program.listing.parts import cuts
from shrinkfx.program.listing.simple_numbers import Number, simpler_numbers
from shrinkfx.program.listing.tensor_specs import (
    LISTED,
    Constant,
    Counted,
    Initializer,
    Opaque,
    Part,
    Saved,
    Seeded,
    Sparse,
    TensorSpec,
)

Elements = tuple[tuple[int, Number], ...]
"""Offsets in memory, and the elements there."""

_ALONE = 8
"""Up to this number of elements, each is left out alone."""


def list_simpler_formulas(recipe: TensorSpec) -> list[Initializer]:
    """List the formulas that are simpler than the present initializer of a tensor.

    Ones come first for floating-point numbers, because zeros hide factors; zeros for
    integers, because they may be indices. Counted elements are all distinct. An opaque
    value has no simpler formulas.
    """
    if isinstance(recipe.fill, Opaque):
        return []
    fills: list[Initializer] = [
        Constant(1.0),
        Counted(),
        Constant(0.0),
        Seeded("randn"),
    ]
    if recipe.dtype == "bool":
        fills = [Constant(True), Constant(False), Seeded("randint", 0, 2)]
    elif "int" in recipe.dtype:
        fills = [Constant(0), Counted(), Constant(1), Seeded("randint", 0, 2)]
    return [fill for fill in fills if _is_simpler(fill, recipe)]


def yield_simpler_elements(recipe: TensorSpec) -> Iterator[Initializer]:
    """Yield initializers with simpler elements, those that need few queries first.

    A sparse initializer gets fewer elements, a constant a simpler number. The values of
    a saved tensor are not known here, so a single non-finite element is tried as a
    guess. The fitter inserts the actual values once few are left.
    """
    fills: Iterator[Initializer] = iter(())
    match recipe.fill:
        case Sparse(base, elements):
            fills = _yield_fewer_elements(base, elements)
        case Constant(number):
            fills = map(Constant, simpler_numbers(number))
        case Saved() as saved:
            odd = (math.nan, math.inf) if "float" in recipe.dtype else ()
            non_finite = (Sparse(1.0, ((0, number),)) for number in odd)
            fills = chain(non_finite, _parts(saved, recipe))
    yield from (fill for fill in dict.fromkeys(fills) if _is_simpler(fill, recipe))


def _is_simpler(fill: Initializer, recipe: TensorSpec) -> bool:
    return replace(recipe, fill=fill).complexity < recipe.complexity


def _yield_fewer_elements(base: Number, elements: Elements) -> Iterator[Initializer]:
    """Yield the most suspicious elements first, then apply delta debugging.

    The suspicious elements are also tried at the front, because sizes can then shrink.
    Delta debugging yields halves, then all but a quarter or an eighth, then all but
    one.
    """
    plain = base if base in (0, 1) else type(base)(isinstance(base, (float, complex)))
    for some in _yield_suspicious_elements(elements):
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


def _parts(saved: Saved, recipe: TensorSpec) -> Iterator[Initializer]:
    """Yield smaller parts of saved values, by delta debugging.

    Once few enough values are left to be listed, yield all of them.
    """
    base: Number = {"bool": True}.get(recipe.dtype, 0 if "int" in recipe.dtype else 1.0)
    size = math.prod(recipe.shape)
    full = Part(saved.key, base, recipe.shape, ((0, size),))
    current = saved if isinstance(saved, Part) else full
    if min(size, current.size) <= LISTED:  # all remaining values can be listed
        yield full if size <= LISTED else current
        return
    halves, quarters = ([*cuts(current.size, count)] for count in (2, 4))
    pairs = [(one, other) for one in quarters[:2] for other in quarters[2:]]
    choices = [*((half,) for half in halves), *pairs, *combinations(quarters, 3)]
    eighths = [*cuts(current.size, 8)]
    choices += [tuple(e for e in eighths if e != omitted) for omitted in eighths]
    for ranges in choices:
        parts = (part for ends in ranges for part in _between(current.parts, *ends))
        yield replace(current, parts=_join_adjacent(parts))


def _join_adjacent(parts: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Join adjacent parts."""
    joined: list[tuple[int, int]] = []
    for start, stop in parts:
        if joined and joined[-1][1] == start:
            start, _ = joined.pop()
        joined.append((start, stop))
    return tuple(joined)


def _between(
    parts: Sequence[tuple[int, int]], start: int, stop: int
) -> Iterator[tuple[int, int]]:
    """Return the sections of parts from one element number to another."""
    passed = 0
    for first, end in parts:
        low = max(first, first + start - passed)
        high = min(end, first + stop - passed)
        if low < high:
            yield low, high
        passed += end - first


def _yield_suspicious_elements(elements: Elements) -> Iterator[Elements]:
    """Yield elements that probably cause the failure: not finite, or the largest."""
    if odd := tuple(pair for pair in elements if not cmath.isfinite(pair[1])):
        yield odd[:1]
        yield odd
    else:
        yield (max(elements, key=lambda pair: abs(pair[1])),)


def _at_front(elements: Sequence[tuple[int, Number]]) -> Elements:
    return tuple((place, value) for place, (_, value) in enumerate(elements))
