"""What a candidate leaves open of its sizes, and what more could be settled.

The symbols of a candidate are those in the shapes of its inputs, and those that its
operators read as numbers. A size such as ``2*s0 + 1`` of an input is open as well:
it may become a dim of its own, and then it needs no ``s0``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from shrinkfx.program.edits import Sizing
from shrinkfx.program.skeleton import Role

if TYPE_CHECKING:
    from shrinkfx.program.candidate import Candidate


def sizings(candidate: Candidate) -> dict[str, list[Sizing]]:
    """List the open sizes, each with what it may be settled as, least open first.

    What differs between the run that passes and the one that fails stays dynamic.
    """
    found: dict[str, list[Sizing]] = {}
    for symbol in sorted(_symbols(candidate) - candidate.sizes.keys()):
        known = candidate.skeleton.sizes[symbol]
        agrees = known.passing == known.failing
        found[symbol] = [Sizing.STATIC if agrees else Sizing.NARROW]
    for size in _derived(candidate):
        known = candidate.skeleton.sizes[size]
        if size not in candidate.sizes and known.passing != known.failing:
            found[size] = [Sizing.PLAIN]
    return found


def in_effect(candidate: Candidate) -> dict[str, Sizing]:
    """Forget what was settled of sizes that are gone."""
    there = _symbols(candidate) | set(_derived(candidate))
    return {size: how for size, how in candidate.sizes.items() if size in there}


def openness(candidate: Candidate) -> int:
    """Count what is open: each edit that settles a size lowers it."""
    if not candidate.skeleton.sizes:
        return 0
    symbols = sum(_OPEN[candidate.sizes.get(s)] for s in _symbols(candidate))
    return symbols + sum(_OPEN[candidate.sizes.get(s)] for s in _derived(candidate))


_OPEN: Mapping[Sizing | None, int] = {
    None: 2,
    Sizing.NARROW: 1,
    Sizing.PLAIN: 1,
    Sizing.STATIC: 0,
}


def _symbols(candidate: Candidate) -> set[str]:
    """Find the symbols, settled ones as well."""
    sizes = candidate.skeleton.sizes
    computed = (
        size
        for size in _sizes_of(candidate, candidate.inputs)
        if candidate.sizes.get(size) is not Sizing.PLAIN
    )
    read = _sizes_of(candidate, _carriers(candidate))
    return {symbol for size in (*computed, *read) for symbol in sizes[size].symbols}


def _derived(candidate: Candidate) -> list[str]:
    """List the inputs' sizes that are computed from symbols that are still open."""
    sizes = candidate.skeleton.sizes
    return [
        size
        for size in _sizes_of(candidate, candidate.inputs)
        if sizes[size].symbols != (size,)
        and any(
            candidate.sizes.get(symbol) is not Sizing.STATIC
            for symbol in sizes[size].symbols
        )
    ]


def _sizes_of(candidate: Candidate, values: Iterable[str]) -> list[str]:
    """List the sizes that are not fixed in the shapes of values, each once."""
    nodes = (candidate.skeleton.node(name) for name in values)
    shapes = (node.value.shape for node in nodes if node.value is not None)
    found = dict.fromkeys(size for shape in shapes for size in shape)
    return [size for size in found if size in candidate.skeleton.sizes]


def _carriers(candidate: Candidate) -> set[str]:
    """Find the values that the numbers are read off which operators take."""
    skeleton, found = candidate.skeleton, set[str]()
    seen = set[str]()
    stack = [v for name in candidate.operators for v in candidate.operands(name)]
    while stack:
        node = skeleton.node(stack.pop())
        if node.role is Role.SIZE and node.name not in seen:
            seen.add(node.name)
            stack += node.operands
            found.update(node.operands)
    return found
