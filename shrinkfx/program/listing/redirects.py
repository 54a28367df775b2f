"""Redirects: the readers of a value read another value of the same type.

    a -> relu -> b        becomes        a -> b

A value without readers is removed, and so are values that only it has read.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterator, Mapping

from shrinkfx.program.edits import Rewrite
from shrinkfx.program.listing.calls import projections
from shrinkfx.program.listing.changes import Write
from shrinkfx.program.listing.printed_program import Block, PrintedProgram
from shrinkfx.program.listing.statements import LeafKind, Statement
from shrinkfx.program.listing.types import Types

Like = tuple[str, tuple[int, ...], str]
"""Dtype, shape and device, which two interchangeable values must have in common."""

Likes = Mapping[str, Like]
"""The types of a block's values, by their expressions in statements.

They are in the order of definition, inputs and weights first.
"""


def types_in_block(listing: PrintedProgram, types: Types, block: Block) -> Likes:
    """Return the types of a block's values, as far as they are known."""
    by_name = {}
    if block is listing.main:
        for tensor in (*listing.inputs, *listing.weights):
            spec = tensor.recipe()
            by_name[tensor.spelling] = spec.dtype, spec.shape, spec.device
    computed = (line.name for line in block.statements if line.yields)
    for name in (*block.arguments, *computed):
        if known := types.get((block.name, name)):
            by_name[name] = known.dtype, known.shape, known.device
    return by_name


def redirect_readers(block: Block, name: str, to: str) -> tuple[Write, ...]:
    """Replace a value by another one in all its readers."""
    return tuple(
        Write(block.name, line.name, leaf.number, to)
        for line in block.statements
        for leaf in line.leaves
        if leaf.kind is LeafKind.VALUE and leaf.text == name
    )


def find_replacements(block: Block, known: Likes, name: str) -> list[str]:
    """List replacements for a value that a block computes, the best first.

    These are an earlier statement with the same code; then operands of the same type;
    else the nearest value of that type upstream, or the first one of the block.
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
    """List the first one-element operand of a one-element value with another rank."""
    line, like = block.statement(name), known.get(name)
    operands = (leaf.text for leaf in line.leaves if leaf.text in line.reads)
    return [other for other in operands if _are_single(like, known.get(other))][:1]


def _are_single(one: Like | None, other: Like | None) -> bool:
    """Return whether two values have one element each and differ only in rank."""
    if one is None or other is None:
        return False
    return (one[0], one[2]) == (other[0], other[2]) and {*one[1], *other[1]} <= {1}


def propose_redirects(
    block: Block, known: Likes, tried: Container[tuple[str, str]] = ()
) -> Iterator[Rewrite]:
    """Propose for each statement, the last one first, that nothing reads it.

    Args:
        tried: pairs of a value and a replacement that was already tested.
    """
    ranked = []
    for line in reversed(block.statements):
        if not line.yields or line.may_have_effects:
            continue
        others = find_replacements(block, known, line.name)
        untried = [other for other in others if (line.name, other) not in tried]
        others = [] if others else _of_one_element(block, known, line.name)
        untried += [other for other in others if (line.name, other) not in tried]
        ranked += [
            (n, redirect_readers(block, line.name, o)) for n, o in enumerate(untried)
        ]
        results = projections(block, line.name).values()
        pairs = [(r.name, find_replacements(block, known, r.name)) for r in results]
        if len(pairs) > 1 and all(instead for _, instead in pairs):
            writes = [
                redirect_readers(block, name, instead[0]) for name, instead in pairs
            ]
            ranked.append((0, tuple(write for each in writes for write in each)))
    # Second choices come last, because all first choices can be made at once.
    yield from (Rewrite(w) for _, w in sorted(ranked, key=lambda pair: pair[0]) if w)


def ancestors(block: Block, names: frozenset[str]) -> frozenset[str]:
    """Collect values and all values that they are computed from."""
    lines = {line.name: line for line in block.statements}
    return names.union(*(_upstream(name, lines) for name in names))


def _index(block: Block, name: str) -> int:
    """Return the index of a value's statement; for a projection, of its operator."""
    places = {line.name: place for place, line in enumerate(block.statements)}
    for line in block.statements:
        if name in (result.name for result in projections(block, line.name).values()):
            return places[line.name]
    return places[name]


def _upstream(name: str, lines: Mapping[str, Statement]) -> Iterator[str]:
    """Yield the values upstream of a value, the nearest first."""
    waiting, seen = deque([name]), {name}
    while waiting:
        line = lines.get(waiting.popleft())
        operands = [leaf.text for leaf in line.leaves] if line else []
        for operand in operands:
            if line and operand in line.reads and operand not in seen:
                seen.add(operand)
                waiting.append(operand)
                yield operand
