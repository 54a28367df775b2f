"""Redirects: who reads a value gets another one of the same type.

    a -> relu -> b        becomes        a -> b

What is not read any more dies, and with it what only that has read.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterator, Mapping

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


def instead_of(block: Block, known: Likes, name: str) -> list[str]:
    """Find what could be there for a value that a block computes, the best first.

    What was computed alike before; the operands of its type; else the nearest value
    upstream of it, or the first one of the block.
    """
    lines = {line.name: line for line in block.statements}
    end = _index(block, name)
    equal = [n.name for n in block.statements[:end] if n.code == lines[name].code]
    earlier = {line.name for line in block.statements[:end]}
    before = [other for other in known if other not in lines or other in earlier]
    like = known.get(name)
    fitting = [other for other in before if like and known[other] == like]
    upstream = [other for other in _upstream(name, lines) if other in fitting]
    operands = [other for other in upstream if other in lines[name].reads]
    return [*equal[:1], *(operands or [*upstream, *fitting][:1])]


def _of_one_element(block: Block, known: Likes, name: str) -> list[str]:
    """Find the operand of a value of one element that is one, too, of another rank."""
    line, like = block.statement(name), known.get(name)
    operands = (leaf.text for leaf in line.leaves if leaf.text in line.reads)
    return [other for other in operands if _are_single(like, known.get(other))][:1]


def _are_single(one: Like | None, other: Like | None) -> bool:
    """Tell whether two values differ in their ranks alone, and hold one element."""
    if one is None or other is None:
        return False
    return (one[0], one[2]) == (other[0], other[2]) and {*one[1], *other[1]} <= {1}


def cuts(
    block: Block, known: Likes, tried: Container[tuple[str, str]] = ()
) -> Iterator[Rewrite]:
    """Propose of each statement, the last one first, to have nothing read it.

    Args:
        tried: values, and what need not be proposed in their place any more.
    """
    found = []
    for line in reversed(block.statements):
        if not line.yields or line.may_act:
            continue
        others = instead_of(block, known, line.name)
        left = [other for other in others if (line.name, other) not in tried]
        others = [] if others else _of_one_element(block, known, line.name)
        left += [other for other in others if (line.name, other) not in tried]
        found += [(n, redirect(block, line.name, o)) for n, o in enumerate(left)]
        results = projections(block, line.name).values()
        pairs = [(r.name, instead_of(block, known, r.name)) for r in results]
        if len(pairs) > 1 and all(instead for _, instead in pairs):
            writes = [redirect(block, name, instead[0]) for name, instead in pairs]
            found.append((0, tuple(write for each in writes for write in each)))
    # Second choices last: all first ones can be made at once.
    yield from (Rewrite(w) for _, w in sorted(found, key=lambda pair: pair[0]) if w)


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
