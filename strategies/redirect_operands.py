"""Have operators read other values of the same type, so that some are not needed.

    y -> exp -> add <- exp <- y        becomes        y -> exp -> add, twice

Two operators that compute the same become one, an operator is bypassed, an input or a
weight takes the place of another one. Small sizes make many types equal that were not.
"""

from __future__ import annotations

from collections.abc import Iterator

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
    that what a value is computed from is returned, of whatever type.
    """

    name = "redirect_operands"
    combines = True
    kind = Kind.OPERANDS

    def propose(self, view: View) -> Iterator[Rewrite]:
        main = view.listing.main
        known = likes(view.listing, view.types, main)
        yield from cuts(main, known)
        given = [each.spelling for each in view.listing.given]
        yield from _merged(main, {n: known[n] for n in known if n in given})
        yield from _without(main)
        yield from _earlier(main, known)


def _merged(main: Block, given: Likes) -> Iterator[Rewrite]:
    """Propose to have the first input or weight of a type in the place of others."""
    first: dict[object, str] = {}
    for name, like in given.items():
        other = first.setdefault(like, name)
        if other != name:
            yield Rewrite(redirect(main, name, other))


def _earlier(main: Block, known: Likes) -> Iterator[Rewrite]:
    """Propose to return what is read by the operator of a value that is returned."""
    lines = {line.name: line for line in main.statements if line.is_operator}
    for leaf in returned(main):
        line = lines.get(leaf.text)
        operands = [part.text for part in line.leaves] if line else []
        for operand in dict.fromkeys(operands):
            if operand in lines.keys() | _results(main) and operand in known:
                yield Rewrite((Write(main.name, RETURN, leaf.number, operand),))


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
