"""Redirects: who reads a value gets another one of the same type.

    a -> relu -> b        becomes        a -> b

What is not read any more dies, and with it what only that has read.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from itertools import islice

from shrinkfx.program.edits import Rewrite
from shrinkfx.program.listing.calls import projections
from shrinkfx.program.listing.changes import Write
from shrinkfx.program.listing.listing import Block, Listing
from shrinkfx.program.listing.statements import LeafKind, Statement
from shrinkfx.program.listing.types import Types

Like = tuple[str, tuple[int, ...], str]
"""Dtype, shape and device: what two values must have in common."""

Likes = Mapping[str, Like]
"""Of the values of a block, as statements spell them, in the order in which they are
there: what it is given first."""


def likes(listing: Listing, types: Types, block: Block) -> Likes:
    """Say what the values of a block are, as far as that is known."""
    found = {}
    if block is listing.main:
        for given in (*listing.inputs, *listing.weights):
            made = given.recipe()
            found[given.spelling] = made.dtype, made.shape, made.device
    computed = (line.name for line in block.statements if line.yields)
    for name in (*block.arguments, *computed):
        if known := types.get((block.name, name)):
            found[name] = known.dtype, known.shape, known.device
    return found


def redirect(block: Block, name: str, to: str) -> tuple[Write, ...]:
    """Have all that read a value read another one."""
    return tuple(
        Write(block.name, line.name, leaf.number, to)
        for line in block.statements
        for leaf in line.leaves
        if leaf.kind is LeafKind.VALUE and leaf.text == name
    )


def instead_of(block: Block, known: Likes, name: str) -> Iterator[str]:
    """Find what could be there for a value that a block computes, the best first.

    What was computed alike before; else the nearest value upstream that is of its type,
    and what else there is before it, what the block is given first.
    """
    lines = {line.name: line for line in block.statements}
    end = _index(block, name)
    earlier = {line.name for line in block.statements[:end]}
    before = [other for other in known if other not in lines or other in earlier]
    own = lines[name].code
    equal = [line.name for line in block.statements[:end] if line.code == own]
    upstream = [other for other in _upstream(name, lines) if other in before]
    like = known.get(name)
    fitting = [n for n in (*upstream, *before) if like and known[n] == like]
    yield from dict.fromkeys([*equal, *fitting])


def cuts(block: Block, known: Likes, alternatives: int) -> Iterator[Rewrite]:
    """Propose of each statement, the last one first, to have nothing read it.

    Args:
        alternatives: what may be read instead, so many at most.
    """
    for line in reversed(block.statements):
        if not line.yields or line.may_act:
            continue
        for other in islice(instead_of(block, known, line.name), alternatives):
            yield Rewrite(redirect(block, line.name, other))
        results = projections(block, line.name).values()
        found = [next(instead_of(block, known, r.name), None) for r in results]
        if len(found) > 1 and None not in found:
            pairs = zip(results, found, strict=True)
            writes = [redirect(block, r.name, other or "") for r, other in pairs]
            yield Rewrite(tuple(write for each in writes for write in each))


def ancestors(block: Block, names: frozenset[str]) -> frozenset[str]:
    """Collect values, and all that they are computed from."""
    lines = {line.name: line for line in block.statements}
    return names.union(*(_upstream(name, lines) for name in names))


def _index(block: Block, name: str) -> int:
    """Find where a value's operator stands: of a projection that which it is of."""
    places = {line.name: place for place, line in enumerate(block.statements)}
    for line in block.statements:
        if name in (result.name for result in projections(block, line.name).values()):
            return places[line.name]
    return places[name]


def _upstream(name: str, lines: Mapping[str, Statement]) -> Iterator[str]:
    """Go upstream from a value, the nearest ones first."""
    waiting, seen = deque([name]), {name}
    while waiting:
        line = lines.get(waiting.popleft())
        operands = [leaf.text for leaf in line.leaves] if line else []
        for operand in operands:
            if line and operand in line.reads and operand not in seen:
                seen.add(operand)
                waiting.append(operand)
                yield operand
