"""Let operators read other values of the same type, so that some values become unused.

    y -> exp -> add <- exp <- y        becomes        y -> exp -> add, twice

Two operators that compute the same become one, an operator is bypassed, or an input or
weight takes the place of another one. There are more equal types once sizes are small.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations

from shrinkfx.program.edits import Rewrite
from shrinkfx.program.listing.printed_program import Kind
from shrinkfx.program.listing.rewrites import (
    composed_views,
    merge_equal_inputs,
    propose_redirects,
    remove_operands,
    return_operands,
    types_in_block,
)
from shrinkfx.program.view import View


class RedirectOperands:
    """Propose for each value, the last one first, which value to read in its place.

    Then propose to omit an operand, from a list or where the operator accepts that, and
    to return an operand of a returned value, whatever its type. The second of two
    consecutive views may read the input of the first, which has another type. Proposals
    that the search for operators has answered are omitted.
    """

    name = "redirect_operands"
    combines = True
    kind = Kind.OPERANDS

    def propose(self, view: View) -> Iterator[Rewrite]:
        main = view.listing.main
        known = types_in_block(view.listing, view.types, main)
        yield from propose_redirects(main, known, _bypassed(view))
        spellings = [each.spelling for each in view.listing.given]
        input_types = {name: known[name] for name in known if name in spellings}
        yield from merge_equal_inputs(main, input_types, _merged_before(view))
        yield from composed_views(main, known)
        yield from remove_operands(main)
        before = {name: view.operands(name) for name in view.operators}
        yield from return_operands(main, known, before)


def _bypassed(view: View) -> frozenset[tuple[str, str]]:
    """Collect the bypasses that were queried before the program was printed."""
    return frozenset(
        (name, operand)
        for name in view.operators
        for operand in view.operands(name)
        if view.same_value_type(name, operand)
    )


def _merged_before(view: View) -> frozenset[tuple[str, str]]:
    """Collect pairs of inputs whose merge was queried: they had one type before."""
    types = {name: view.skeleton.node(name).value for name in view.inputs}
    pairs = permutations(types, 2)
    return frozenset((one, two) for one, two in pairs if types[one] == types[two])
