"""Cut what branches and bodies hold.

    cond(c, (x -> exp -> mm), (x -> tanh))   becomes   cond(c, (x -> mm), (x))

A ``cond`` or a loop is one operator, and stays or goes with all that is inside. What it
computes for nobody goes, and what it is given for nothing; a branch that is not taken
hands on what it got; a loop goes round once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from shrinkfx.program.edits import Rewrite
from shrinkfx.program.listing.calls import all_calls, returned
from shrinkfx.program.listing.changes import Write
from shrinkfx.program.listing.insides import merged, unread
from shrinkfx.program.listing.listing import Block, Listing
from shrinkfx.program.listing.loops import literals, results_tested, while_loops
from shrinkfx.program.listing.redirects import Likes, cuts, likes
from shrinkfx.program.listing.statements import RETURN
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
        yield from _shared(listing)
        inside = listing.blocks[:-1][::-1]
        known = {b.name: likes(listing, view.types, b) for b in inside}
        tests = results_tested(listing)
        for block in inside:
            yield from _plainest(block, known[block.name], tests.get(block.name, ()))
        for block in inside:
            for rewrite in cuts(block, known[block.name]):
                if not _is_endless(rewrite, block, tests.get(block.name, ())):
                    yield rewrite
        yield from merged(listing, known)
        yield from _counts(listing)


def _shared(listing: Listing) -> Iterator[Rewrite]:
    """Propose one branch in the place of both."""
    for call in all_calls(listing):
        if call.statement.callee != "torch.cond" or len(call.blocks) != 2:
            continue
        for own in call.callees:
            writes = (
                Write(call.caller, call.statement.name, leaf.number, own.text)
                for leaf in call.callees
            )
            yield Rewrite(tuple(writes))


def _plainest(block: Block, known: Likes, tests: Collection[int]) -> Iterator[Rewrite]:
    """Propose to hand on what a block got: all results, as far as types allow."""
    writes = tuple(
        Write(block.name, RETURN, leaf.number, argument)
        for leaf in returned(block)
        if leaf.text not in block.arguments and leaf.number not in tests
        for argument in block.arguments
        if leaf.text in known and known.get(argument) == known[leaf.text]
    )
    if writes:
        yield Rewrite(writes, partly=True)


def _counts(listing: Listing) -> Iterator[Rewrite]:
    """Propose that a loop goes round once, or twice."""
    for _, test, _ in while_loops(listing):
        for line, leaf, text in literals(test):
            yield from (
                Rewrite((Write(test.name, line, leaf, str(count)),))
                for count in (1, 2)
                if count < int(text)
            )


def _is_endless(rewrite: Rewrite, block: Block, tests: Collection[int]) -> bool:
    """Tell whether a loop would test what its body hands on as it got it."""
    return any(
        isinstance(change, Write)
        and (change.statement, change.text in block.arguments) == (RETURN, True)
        and change.leaf in tests
        for change in rewrite.changes
    )
