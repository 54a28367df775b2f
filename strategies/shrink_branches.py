"""Simplify branches and loop bodies.

    cond(c, (x -> exp -> mm), (x -> tanh))   becomes   cond(c, (x -> mm), (x))

A ``cond`` or a loop counts as one operator, which stays or goes with everything inside.
This strategy drops its unused results and unused arguments, lets a branch that is not
taken return its arguments, and reduces a loop to one iteration.
"""

from __future__ import annotations

from collections.abc import Iterator

from shrinkfx.program.edits import Rewrite
from shrinkfx.program.listing.printed_program import Kind
from shrinkfx.program.listing.rewrites import (
    drop_unread,
    is_endless,
    merge_arguments,
    one_branch,
    propose_redirects,
    reduce_iterations,
    results_tested,
    return_arguments,
    types_in_block,
)
from shrinkfx.program.view import View


class ShrinkBranches:
    """Propose the largest removals first: whole branches, then single statements.

    No proposal makes a loop test a value that never changes, because the loop would not
    end.
    """

    name = "shrink_branches"
    combines = True
    kind = Kind.INSIDES

    def propose(self, view: View) -> Iterator[Rewrite]:
        listing = view.listing
        yield from drop_unread(listing)
        yield from one_branch(listing)
        inside = listing.blocks[:-1][::-1]
        known = {b.name: types_in_block(listing, view.types, b) for b in inside}
        tests = results_tested(listing)
        for block in inside:
            yield from return_arguments(
                block, known[block.name], tests.get(block.name, ())
            )
        for block in inside:
            for rewrite in propose_redirects(block, known[block.name]):
                if not is_endless(rewrite, block, tests.get(block.name, ())):
                    yield rewrite
        yield from merge_arguments(listing, known)
        yield from reduce_iterations(listing)
