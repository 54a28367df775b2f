"""Cut what branches and bodies hold.

    cond(c, (x -> exp -> mm), (x -> tanh))   becomes   cond(c, (x -> mm), (x))

A ``cond`` or a loop is one operator, and stays or goes with all that is inside. What it
computes for nobody goes, and what it is given for nothing; a branch that is not taken
hands on what it got; a loop goes round once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from shrinkfx.program.edits import Rewrite
from shrinkfx.program.listing.calls import all_calls, projections, returned
from shrinkfx.program.listing.changes import Change, DropArgument, DropResult, Write
from shrinkfx.program.listing.listing import Block, Listing
from shrinkfx.program.listing.loops import literals, tested, while_loops
from shrinkfx.program.listing.redirects import Likes, cuts, likes, redirect
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
        yield from _unread(listing)
        yield from _shared(listing)
        inside = listing.blocks[:-1][::-1]
        known = {b.name: likes(listing, view.types, b) for b in inside}
        tests = _results_tested(listing)
        for block in inside:
            yield from _plainest(block, known[block.name], tests.get(block.name, ()))
        for block in inside:
            for rewrite in cuts(block, known[block.name]):
                if not _is_endless(rewrite, block, tests.get(block.name, ())):
                    yield rewrite
        yield from _merged(listing, known)
        yield from _counts(listing)


def _unread(listing: Listing) -> Iterator[Rewrite]:
    """Propose to drop results that nobody reads, and arguments: all, and each alone."""
    drops: list[Change] = []
    for call in all_calls(listing):
        block = listing.block(call.caller)
        results = len(returned(listing.block(call.returning[0])))
        taken = projections(block, call.statement.name)
        drops += [
            DropResult(block.name, call.statement.name, place)
            for place in range(results)
            if place not in taken
        ]
        arguments = listing.block(call.blocks[0]).arguments
        drops += [DropArgument(call.blocks[0], n) for n in arguments[call.carried :]]
    if len(drops) > 1:
        yield Rewrite(tuple(drops), partly=True)
    yield from (Rewrite((drop,)) for drop in drops)


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


def _merged(listing: Listing, known: Mapping[str, Likes]) -> Iterator[Rewrite]:
    """Propose that blocks read the first argument of a type in the place of another."""
    for call in all_calls(listing):
        blocks = [listing.block(name) for name in call.blocks]
        first: dict[object, int] = {}
        for place, name in enumerate(blocks[-1].arguments):
            same = first.setdefault(known[blocks[-1].name].get(name, place), place)
            if same == place or any(len(b.arguments) <= place for b in blocks):
                continue
            changes: list[Change] = []
            for block in blocks:
                arguments = block.arguments
                changes += redirect(block, arguments[place], arguments[same])
            if place < call.carried:
                changes += [DropResult(call.caller, call.statement.name, place)]
            else:
                changes += [DropArgument(blocks[-1].name, name)]
            yield Rewrite(tuple(changes))


def _counts(listing: Listing) -> Iterator[Rewrite]:
    """Propose that a loop goes round once, or twice."""
    for _, test, _ in while_loops(listing):
        for line, leaf, text in literals(test):
            yield from (
                Rewrite((Write(test.name, line, leaf, str(count)),))
                for count in (1, 2)
                if count < int(text)
            )


def _results_tested(listing: Listing) -> dict[str, set[int]]:
    """List by body the leaves of the results that a loop's test reads."""
    found = {}
    for _, test, body in while_loops(listing):
        results = returned(body)
        places = [place for place in tested(test) if place < len(results)]
        found[body.name] = {results[place].number for place in places}
    return found


def _is_endless(rewrite: Rewrite, block: Block, tests: Collection[int]) -> bool:
    """Tell whether a loop would test what its body hands on as it got it."""
    return any(
        isinstance(change, Write)
        and (change.statement, change.text in block.arguments) == (RETURN, True)
        and change.leaf in tests
        for change in rewrite.changes
    )
