"""Calls of branches and loop bodies: their arguments and results.

    loop = while_loop(self.test, self.body, (i, h), (w,))    calls test(i, h, w)
    getitem = loop[1]                                        and body(i, h, w)

The operands of a call are in its lists, in the order of the blocks' arguments. The
values that a loop carries come first; the body returns them, and the next iteration
gets them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

from shrinkfx.errors import InvalidEdit
from shrinkfx.program.listing.printed_program import Block, PrintedProgram
from shrinkfx.program.listing.statements import RETURN, Leaf, LeafKind, Statement

_CARRIES = re.compile(r"\.(while_loop|scan)$")
_RETURNS_LAST = re.compile(r"\.while_loop$")
"""The first of its two blocks only decides whether the loop continues."""

_PROJECTION = re.compile(r"(\w+)\[(\d+)\]")


@dataclass(frozen=True)
class Call:
    """A statement that calls blocks.

    Attributes:
        caller: the name of the block that contains the statement.
        callees: the leaves that name the called blocks.
        blocks: the names of those blocks, each once, in order.
        operands: the leaves that are passed to the blocks, by position.
        carried: how many of the operands, from the first, are carried by a loop.
    """

    caller: str
    statement: Statement
    callees: tuple[Leaf, ...]
    blocks: tuple[str, ...]
    operands: tuple[Leaf, ...]
    carried: int

    @property
    def returning(self) -> tuple[str, ...]:
        """The blocks whose results are those of the call."""
        last = _RETURNS_LAST.search(self.statement.callee)
        return self.blocks[-1:] if last else self.blocks


def calls_of(block: Block) -> Iterator[Call]:
    """Yield the calls in a block."""
    kinds = {f"self.{attribute}": kind for attribute, kind in block.members}
    for line in block.statements:
        top_level = [leaf for leaf in line.leaves if leaf.parent is None]
        callees = [leaf for leaf in top_level if _method(leaf) in kinds]
        if callees and line.is_operator:
            called = dict.fromkeys(kinds[_method(leaf)] for leaf in callees)
            lists = [leaf.number for leaf in top_level if leaf.kind is LeafKind.LIST]
            operands = [leaf for leaf in line.leaves if leaf.parent in lists]
            carries = _CARRIES.search(line.callee) and lists
            carried = sum(o.parent == lists[0] for o in operands) if carries else 0
            parts = tuple(callees), tuple(called), tuple(operands), carried
            yield Call(block.name, line, *parts)


def _method(leaf: Leaf) -> str:
    return leaf.text.removesuffix(".forward")


def all_calls(listing: PrintedProgram) -> list[Call]:
    return [call for block in listing.blocks for call in calls_of(block)]


def projections(block: Block, name: str) -> dict[int, Statement]:
    """Map result numbers to the statements that select these results of a statement."""
    by_number = {}
    for statement in block.statements:
        match = _PROJECTION.fullmatch(statement.code)
        if match and match[1] == name:
            by_number[int(match[2])] = statement
    return by_number


def returned_leaves(block: Block) -> list[Leaf]:
    """List the returned values of a block, if it returns a list."""
    leaves = block.statement(RETURN).leaves
    return [leaf for leaf in leaves if leaf.parent == leaves[0].number]


def cut_before(listing: PrintedProgram, names: Collection[str]) -> PrintedProgram:
    """Remove operators of the main block, and return the tensors that they read.

    If they read a size, the tensor that has this size is returned. Statements that are
    computed from their results are removed, too.

    Raises:
        InvalidEdit: they read no result of another operator.
    """
    main = listing.main
    removed: set[str] = set()
    remaining: list[Statement] = []
    needed: set[str] = set()
    for line in main.statements[:-1]:
        if line.name not in names and not line.reads & removed:
            remaining.append(line)
            continue
        needed |= line.reads if line.name in names else set()
        removed |= {line.name} if line.yields else set()
    for line in reversed(remaining):
        needed |= line.reads if line.name in needed and _is_number(line) else set()
    tensors: list[str] = []
    for line in remaining:
        if line.name in needed and not _is_number(line):
            results = projections(main, line.name).values()
            tensors += [each.name for each in results] or [line.name]
    tensors = list(dict.fromkeys(tensors))
    if not tensors:
        raise InvalidEdit("nothing would be returned")
    end = Statement.parse_line(f"return ({', '.join(tensors)},)")
    return listing.with_block(replace(main, statements=(*remaining, end))).normalised()


_NUMBER = re.compile(r"\.(item|_local_scalar_dense|sym_\w+)\.")
"""Operators whose result is a number."""


def _is_number(line: Statement) -> bool:
    """Return whether a statement yields a number, such as a size, and not a tensor."""
    if line.is_operator:
        return bool(_NUMBER.search(line.callee))
    return not _PROJECTION.fullmatch(line.code)


def require_results(old: PrintedProgram, new: PrintedProgram) -> None:
    """Check that a program with results still has results.

    A program without results can be exported, but ``torch.export.save`` does not save
    it.

    Raises:
        InvalidEdit: all results are gone.
    """
    if returned_leaves(old.main) and new.main.statement(RETURN).code in ("()", "[]"):
        raise InvalidEdit("nothing would be returned")


def without_argument(
    listing: PrintedProgram, name: str, argument: str
) -> PrintedProgram:
    """Remove an argument from the block ``name`` and from all blocks called with it.

    Raises:
        InvalidEdit: a block reads the argument, or it is carried by a loop.
    """
    if argument not in listing.block(name).arguments:
        raise InvalidEdit(f"{name} has no argument {argument}")
    place = listing.block(name).arguments.index(argument)
    calls = [call for call in all_calls(listing) if name in call.blocks]
    for call in calls:
        if place < call.carried:
            raise InvalidEdit("what is carried is a result, too")
        listing = _without_operand(listing, call, place)
    if not calls:
        raise InvalidEdit(f"nothing calls {name}")
    return listing


def without_result(
    listing: PrintedProgram, caller: str, name: str, place: int
) -> PrintedProgram:
    """Remove a result from a call and its blocks; a carried one also as an argument.

    Raises:
        InvalidEdit: the result is read, or it is the only one.
    """
    block = listing.block(caller)
    call = next((c for c in calls_of(block) if c.statement.name == name), None)
    picks = projections(block, name)
    if call is None or place in picks or _is_read_whole(block, name):
        raise InvalidEdit(f"no result {place} of {name} can go")
    for each in call.returning:
        listing = _without_return(listing, listing.block(each), place)
    if place < call.carried:
        listing = _without_operand(listing, call, place)
    lines = {s.name: _renumbered(s, name, n - 1) for n, s in picks.items() if n > place}
    return _with_lines(listing, caller, lines)


def _is_read_whole(block: Block, name: str) -> bool:
    """Return whether a statement other than a projection reads ``name``."""
    selected = {statement.name for statement in projections(block, name).values()}
    others = [s for s in block.statements if s.name not in selected]
    return any(name in statement.reads for statement in others)


def _without_operand(listing: PrintedProgram, call: Call, place: int) -> PrintedProgram:
    for name in call.blocks:
        block = listing.block(name).normalised()
        if len(block.arguments) != len(call.operands):
            raise InvalidEdit(f"{name} is not called with its arguments one by one")
        removed = block.arguments[place]
        if any(removed in statement.reads for statement in block.statements):
            raise InvalidEdit(f"{name} reads {removed}")
        arguments = (*block.arguments[:place], *block.arguments[place + 1 :])
        listing = listing.with_block(replace(block, arguments=arguments))
    line = call.statement.written({call.operands[place].number: ""})
    return _with_lines(listing, call.caller, {line.name: line})


def _without_return(
    listing: PrintedProgram, block: Block, place: int
) -> PrintedProgram:
    leaves = returned_leaves(block)
    if not place < len(leaves) or len(leaves) == 1:
        raise InvalidEdit(f"{block.name} has no result {place} besides others")
    line = block.statement(RETURN).written({leaves[place].number: ""})
    return _with_lines(listing, block.name, {RETURN: line})


def _renumbered(statement: Statement, of: str, place: int) -> Statement:
    return replace(statement, code=f"{of}[{place}]")


def _with_lines(
    listing: PrintedProgram, name: str, lines: dict[str, Statement]
) -> PrintedProgram:
    block = listing.block(name)
    new = tuple(lines.get(each.name, each) for each in block.statements)
    return listing.with_block(replace(block, statements=new))
