"""Loops: what tells each whether it goes on, and how often."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from shrinkfx.program.edits import Rewrite
from shrinkfx.program.listing.calls import Call, all_calls, returned
from shrinkfx.program.listing.changes import Write
from shrinkfx.program.listing.listing import Block, Listing
from shrinkfx.program.listing.redirects import ancestors
from shrinkfx.program.listing.statements import RETURN, LeafKind


def while_loops(listing: Listing) -> Iterator[tuple[Call, Block, Block]]:
    """Find the loops that test something, each with its test and its body."""
    for call in all_calls(listing):
        if call.statement.callee.endswith(".while_loop") and len(call.blocks) == 2:
            test, body = (listing.block(name) for name in call.blocks)
            yield call, test, body


def tested(test: Block) -> list[int]:
    """Number the arguments that a loop's test reads."""
    reads = frozenset[str]().union(*(line.reads for line in test.statements))
    return [n for n, argument in enumerate(test.arguments) if argument in reads]


def results_tested(listing: Listing) -> dict[str, set[int]]:
    """List by body the leaves of the results that a loop's test reads."""
    found = {}
    for _, test, body in while_loops(listing):
        results = returned(body)
        places = [place for place in tested(test) if place < len(results)]
        found[body.name] = {results[place].number for place in places}
    return found


def controlling(listing: Listing) -> frozenset[tuple[str, str]]:
    """Collect statements of bodies that a test depends on, by block and name.

    Made plainer, they may have a loop go on for ever.
    """
    found = set()
    for _, test, body in while_loops(listing):
        results = returned(body)
        names = {results[n].text for n in tested(test) if n < len(results)}
        found |= {(body.name, name) for name in ancestors(body, frozenset(names))}
    return frozenset(found)


def literals(test: Block) -> Iterator[tuple[str, int, str]]:
    """List the numbers that a test compares with: statement, leaf and text."""
    for line in test.statements:
        for leaf in line.leaves:
            is_number = leaf.kind is LeafKind.NUMBER and leaf.text.isdecimal()
            if line.is_operator and is_number:
                yield line.name, leaf.number, leaf.text


def fewer_rounds(listing: Listing) -> Iterator[Rewrite]:
    """Propose that a loop goes round once, or twice."""
    for _, test, _ in while_loops(listing):
        for line, leaf, text in literals(test):
            yield from (
                Rewrite((Write(test.name, line, leaf, str(count)),))
                for count in (1, 2)
                if count < int(text)
            )


def is_endless(rewrite: Rewrite, block: Block, tests: Collection[int]) -> bool:
    """Tell whether a loop would test what its body hands on as it got it."""
    return any(
        isinstance(change, Write)
        and (change.statement, change.text in block.arguments) == (RETURN, True)
        and change.leaf in tests
        for change in rewrite.changes
    )
