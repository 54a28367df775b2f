"""Cut what branches and bodies hold.

    cond(c, (x -> exp -> mm), (x -> tanh))   becomes   cond(c, (x -> mm), (x))

A ``cond`` or a loop is one operator, and stays or goes with all that is inside. What it
computes for nobody goes, and what it is given for nothing; a branch that is not taken
hands on what it got; a loop goes round once.
"""

from __future__ import annotations

from collections.abc import Iterator

from shrinkfx.program.edits import Rewrite
from shrinkfx.program.listing.insides import handed_on, merged, one_branch, unread
from shrinkfx.program.listing.loops import fewer_rounds, is_endless, results_tested
from shrinkfx.program.listing.redirects import cuts, likes
from shrinkfx.program.listing.types import Kind
from shrinkfx.program.view import View


class CutInsides:
    """Propose what takes most away first: whole branches, then single statements.

    No redirect has a loop test what never changes.
    """

    name = "cut_insides"
    combines = True
    kind = Kind.INSIDES

    def propose(self, view: View) -> Iterator[Rewrite]:
        listing = view.listing
        yield from unread(listing)
        yield from one_branch(listing)
        inside = listing.blocks[:-1][::-1]
        known = {b.name: likes(listing, view.types, b) for b in inside}
        tests = results_tested(listing)
        for block in inside:
            yield from handed_on(block, known[block.name], tests.get(block.name, ()))
        for block in inside:
            for rewrite in cuts(block, known[block.name]):
                if not is_endless(rewrite, block, tests.get(block.name, ())):
                    yield rewrite
        yield from merged(listing, known)
        yield from fewer_rounds(listing)
