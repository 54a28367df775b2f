"""Have operators read other values of the same type, so that some are not needed.

    y -> exp -> add <- exp <- y        becomes        y -> exp -> add, twice

Two operators that compute the same become one, an operator is bypassed, an input or a
weight takes the place of another one. Small sizes make many types equal that were not.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from itertools import permutations

from shrinkfx.program.edits import Rewrite
from shrinkfx.program.listing.calls import projections, returned
from shrinkfx.program.listing.changes import Write
from shrinkfx.program.listing.listing import Block
from shrinkfx.program.listing.redirects import Likes, cuts, likes, redirect
from shrinkfx.program.listing.statements import RETURN, LeafKind
from shrinkfx.program.listing.types import Kind
from shrinkfx.program.view import View


class RedirectOperands:
    """Propose of each value, the last one first, what may be read in its place.

    Then that an operand goes: from a list, or where an operator can do without. And
    that what a value is computed from is returned, of whatever type. What was proposed
    of operators is left out: it was answered.
    """

    name = "redirect_operands"
    combines = True
    kind = Kind.OPERANDS

    def propose(self, view: View) -> Iterator[Rewrite]:
        main = view.listing.main
        known = likes(view.listing, view.types, main)
        yield from cuts(main, known, _bypassed(view))
        given = [each.spelling for each in view.listing.given]
        likes_given = {name: known[name] for name in known if name in given}
        yield from _merged(main, likes_given, _merged_before(view))
        yield from _without(main)
        yield from _earlier(main, known, view)


def _bypassed(view: View) -> frozenset[tuple[str, str]]:
    """Collect bypasses that were answered before there was a listing, by name."""
    return frozenset(
        (name, operand)
        for name in view.operators
        for operand in view.operands(name)
        if view.same_value_type(name, operand)
    )


def _merged_before(view: View) -> frozenset[tuple[str, str]]:
    """Collect inputs that were of one type then, so that merging them was answered."""
    types = {name: view.skeleton.node(name).value for name in view.inputs}
    pairs = permutations(types, 2)
    return frozenset((one, two) for one, two in pairs if types[one] == types[two])


def _merged(
    main: Block, given: Likes, tried: Container[tuple[str, str]]
) -> Iterator[Rewrite]:
    """Propose to have the first input or weight of a type in the place of others."""
    first: dict[object, str] = {}
    for name, like in given.items():
        other = first.setdefault(like, name)
        if other != name and (name, other) not in tried:
            yield Rewrite(redirect(main, name, other))


def _earlier(main: Block, known: Likes, view: View) -> Iterator[Rewrite]:
    """Propose to return what is read by the operator of a value that is returned.

    Where it reads what it read before, dropping it was answered.
    """
    lines = {line.name: line for line in main.statements if line.is_operator}
    computed = lines.keys() | _results(main)
    for leaf in returned(main):
        line = lines.get(leaf.text)
        operands = [part.text for part in line.leaves] if line else []
        before = view.operands(leaf.text) if leaf.text in view.operators else []
        for other in dict.fromkeys(operands):
            if other in computed and other in known and other not in before:
                yield Rewrite((Write(main.name, RETURN, leaf.number, other),))


def _results(main: Block) -> set[str]:
    """Collect the names of single results."""
    results = (projections(main, line.name) for line in main.statements)
    return {line.name for found in results for line in found.values()}


def _without(main: Block) -> Iterator[Rewrite]:
    """Propose to leave out a value, or to hand on None; only a call must have all."""
    for line in reversed(main.statements):
        members = {f"self.{attribute}" for attribute, _ in main.members}
        if line.reads & members:
            continue
        kinds = {leaf.number: leaf.kind for leaf in line.leaves}
        for leaf in reversed(line.leaves):
            if leaf.kind is not LeafKind.VALUE:
                continue
            if leaf.parent is None and line.is_operator:
                yield _alternatives(main, line.name, leaf.number, ("", "None"))
            elif leaf.parent is not None and kinds[leaf.parent] is LeafKind.LIST:
                yield _alternatives(main, line.name, leaf.number, ("",))


def _alternatives(
    block: Block, line: str, leaf: int, texts: tuple[str, ...]
) -> Rewrite:
    """Write the first one that fits: of one place no second change is made."""
    changes = tuple(Write(block.name, line, leaf, text) for text in texts)
    return Rewrite(changes, partly=True)
