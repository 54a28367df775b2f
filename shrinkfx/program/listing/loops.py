"""Queries and rewrites for the tests of loops and the number of iterations."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from shrinkfx.program.edits import Rewrite
from shrinkfx.program.listing.calls import Call, all_calls, returned_leaves
from shrinkfx.program.listing.changes import Write
from shrinkfx.program.listing.printed_program import Block, PrintedProgram
from shrinkfx.program.listing.redirects import ancestors
from shrinkfx.program.listing.statements import RETURN, LeafKind


def while_loops(listing: PrintedProgram) -> Iterator[tuple[Call, Block, Block]]:
    """Yield the while loops, each with its test and its body."""
    for call in all_calls(listing):
        if call.statement.callee.endswith(".while_loop") and len(call.blocks) == 2:
            test, body = (listing.block(name) for name in call.blocks)
            yield call, test, body


def tested_arguments(test: Block) -> list[int]:
    """Return the positions of the arguments that a loop's test reads."""
    reads = frozenset[str]().union(*(line.reads for line in test.statements))
    return [n for n, argument in enumerate(test.arguments) if argument in reads]


def results_tested(listing: PrintedProgram) -> dict[str, set[int]]:
    """Map bodies to the leaves of the results that the loop's test reads."""
    tested = {}
    for _, test, body in while_loops(listing):
        results = returned_leaves(body)
        places = [place for place in tested_arguments(test) if place < len(results)]
        tested[body.name] = {results[place].number for place in places}
    return tested


def loop_control_statements(listing: PrintedProgram) -> frozenset[tuple[str, str]]:
    """Collect the statements of bodies that a test depends on, as (block, name).

    Simplifying them may make a loop run forever.
    """
    statements = set()
    for _, test, body in while_loops(listing):
        results = returned_leaves(body)
        names = {results[n].text for n in tested_arguments(test) if n < len(results)}
        statements |= {(body.name, name) for name in ancestors(body, frozenset(names))}
    return frozenset(statements)


def literals(test: Block) -> Iterator[tuple[str, int, str]]:
    """Yield the numbers that a test compares with: statement, leaf and text."""
    for line in test.statements:
        for leaf in line.leaves:
            is_number = leaf.kind is LeafKind.NUMBER and leaf.text.isdecimal()
            if line.is_operator and is_number:
                yield line.name, leaf.number, leaf.text


def reduce_iterations(listing: PrintedProgram) -> Iterator[Rewrite]:
    """Propose that a loop iterates once, or twice."""
    for _, test, _ in while_loops(listing):
        for line, leaf, text in literals(test):
            yield from (
                Rewrite((Write(test.name, line, leaf, str(count)),))
                for count in (1, 2)
                if count < int(text)
            )


def is_endless(rewrite: Rewrite, block: Block, tests: Collection[int]) -> bool:
    """Return whether a rewrite makes a loop test an argument that never changes."""
    return any(
        isinstance(change, Write)
        and (change.statement, change.text in block.arguments) == (RETURN, True)
        and change.leaf in tests
        for change in rewrite.changes
    )
