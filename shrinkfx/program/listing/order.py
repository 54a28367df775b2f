"""Sort statements into the order of use: each right before its first reader.

    a = relu(x)              a = relu(x)
    b = exp(y)               c = neg(a)
    c = neg(a)    becomes    b = exp(y)
    d = add(c, b)            d = add(c, b)

This is not a step of the search, because it does not lower the cost. It is done once,
when the repro is written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from shrinkfx.program.listing.calls import projections
from shrinkfx.program.listing.printed_program import Block, PrintedProgram
from shrinkfx.program.listing.statements import Statement


def sort_by_use(listing: PrintedProgram) -> PrintedProgram:
    """Sort statements, and the arguments of the main block, into the order of use.

    A block with a statement that has side effects is left unchanged.
    """
    blocks = tuple(_sort_block(block) for block in listing.blocks)
    main = blocks[-1]
    first = {name: place for place, name in enumerate(_read_in_order(main))}
    arguments = tuple(sorted(main.arguments, key=lambda name: first.get(name, -1)))
    by_name = {tensor.name: tensor for tensor in listing.inputs}
    return replace(
        listing,
        blocks=(*blocks[:-1], replace(main, arguments=arguments)),
        given=(*listing.weights, *(by_name[name] for name in arguments)),
    )


def _sort_block(block: Block) -> Block:
    *lines, last = block.statements
    if any(line.may_have_effects or not line.yields for line in lines):
        return block
    known = {line.name: line for line in lines}
    results = {line.name: projections(block, line.name) for line in lines}
    read = frozenset[str]().union(*(line.reads for line in block.statements))
    placed: dict[str, Statement] = {}
    for root in (*(line for line in lines if line.name not in read), last):
        _place(root, known, placed)
    moved = {result.name for each in results.values() for result in each.values()}
    ordered = [
        each
        for line in placed.values()
        if line.name not in moved
        for each in (line, *_in_turn(results.get(line.name, {})))
    ]
    return replace(block, statements=tuple(ordered))


def _in_turn(results: Mapping[int, Statement]) -> list[Statement]:
    """List projections in order, right after their operator, as an export does."""
    return [results[number] for number in sorted(results)]


def _place(
    root: Statement, known: Mapping[str, Statement], placed: dict[str, Statement]
) -> None:
    """Place the operands of a statement, depth first, and then the statement."""
    waiting = [(root, iter(_reads(root)))]
    while waiting:  # no recursion, because a program may be long
        statement, operands = waiting[-1]
        operand = next((o for o in operands if o in known and o not in placed), None)
        if operand is not None:
            waiting.append((known[operand], iter(_reads(known[operand]))))
        else:
            waiting.pop()
            placed[statement.name] = statement


def _reads(statement: Statement) -> list[str]:
    """List the names that a statement reads, in text order."""
    texts = [leaf.text for leaf in statement.leaves if leaf.text in statement.reads]
    return list(dict.fromkeys([*texts, *sorted(statement.reads)]))


def _read_in_order(block: Block) -> list[str]:
    reads = [name for statement in block.statements for name in _reads(statement)]
    return list(dict.fromkeys(reads))
