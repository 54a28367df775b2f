"""Rewrites that remove unused or duplicate arguments and results of subgraphs."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from shrinkfx.program.edits import Rewrite
from shrinkfx.program.listing.calls import all_calls, projections, returned_leaves
from shrinkfx.program.listing.changes import Change, DropArgument, DropResult, Write
from shrinkfx.program.listing.printed_program import Block, PrintedProgram
from shrinkfx.program.listing.redirects import Likes, redirect_readers
from shrinkfx.program.listing.statements import RETURN


def drop_unread(listing: PrintedProgram) -> Iterator[Rewrite]:
    """Propose to drop unread results and arguments: all at once, then each alone."""
    drops: list[Change] = []
    for call in all_calls(listing):
        block = listing.block(call.caller)
        results = len(returned_leaves(listing.block(call.returning[0])))
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


def merge_arguments(
    listing: PrintedProgram, known: Mapping[str, Likes]
) -> Iterator[Rewrite]:
    """Propose that blocks read the first argument of a type instead of another one."""
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
                changes += redirect_readers(block, arguments[place], arguments[same])
            if place < call.carried:
                changes += [DropResult(call.caller, call.statement.name, place)]
            else:
                changes += [DropArgument(blocks[-1].name, name)]
            yield Rewrite(tuple(changes))


def one_branch(listing: PrintedProgram) -> Iterator[Rewrite]:
    """Propose to call one branch in place of both."""
    for call in all_calls(listing):
        if call.statement.callee != "torch.cond" or len(call.blocks) != 2:
            continue
        for chosen in call.callees:
            writes = (
                Write(call.caller, call.statement.name, leaf.number, chosen.text)
                for leaf in call.callees
            )
            yield Rewrite(tuple(writes))


def return_arguments(
    block: Block, known: Likes, tests: Collection[int]
) -> Iterator[Rewrite]:
    """Propose to return the arguments of a block: for all results whose types match."""
    writes = tuple(
        Write(block.name, RETURN, leaf.number, argument)
        for leaf in returned_leaves(block)
        if leaf.text not in block.arguments and leaf.number not in tests
        for argument in block.arguments
        if leaf.text in known and known.get(argument) == known[leaf.text]
    )
    if writes:
        yield Rewrite(writes, partly=True)
