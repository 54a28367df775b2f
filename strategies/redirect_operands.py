"""Have operators read other values of the same type, so that some are not needed.

    y -> exp -> add <- exp <- y        becomes        y -> exp -> add, twice

Two operators that compute the same become one, an operator is bypassed, an input or a
weight takes the place of another one. Small sizes make many types equal that were not.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations

from shrinkfx.program.edits import Rewrite
from shrinkfx.program.listing.operands import (
    composed_views,
    given_twice,
    returned_earlier,
    without_operands,
)
from shrinkfx.program.listing.redirects import cuts, likes
from shrinkfx.program.listing.types import Kind
from shrinkfx.program.view import View


class RedirectOperands:
    """Propose of each value, the last one first, what may be read in its place.

    Then that an operand goes: from a list, or where an operator can do without. And
    that what a value is computed from is returned, of whatever type. What was proposed
    of operators is left out: it was answered. Of two views in a row the second may read
    what the first one reads, which is of another type.
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
        yield from given_twice(main, likes_given, _merged_before(view))
        yield from composed_views(main, known)
        yield from without_operands(main)
        before = {name: view.operands(name) for name in view.operators}
        yield from returned_earlier(main, known, before)


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
