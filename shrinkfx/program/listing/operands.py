"""Rewrites of the main block's operands: duplicates, list items, last operators."""

from __future__ import annotations

import re
from collections.abc import Collection, Container, Iterator, Mapping

from shrinkfx.program.edits import Rewrite
from shrinkfx.program.listing.calls import projections, returned_leaves
from shrinkfx.program.listing.changes import Write
from shrinkfx.program.listing.printed_program import Block
from shrinkfx.program.listing.redirects import Likes, redirect_readers
from shrinkfx.program.listing.statements import RETURN, LeafKind


def merge_equal_inputs(
    main: Block, inputs: Likes, tried: Container[tuple[str, str]]
) -> Iterator[Rewrite]:
    """Propose to read the first input or weight of a type instead of the others."""
    first: dict[object, str] = {}
    for name, like in inputs.items():
        other = first.setdefault(like, name)
        if other != name and (name, other) not in tried:
            yield Rewrite(redirect_readers(main, name, other))


def return_operands(
    main: Block, known: Likes, before: Mapping[str, Collection[str]]
) -> Iterator[Rewrite]:
    """Propose to return an operand of the operator that computes a returned value.

    Args:
        before: the operands of operators before the program was printed. A query that
            dropped an operator has already tested returning these.
    """
    lines = {line.name: line for line in main.statements if line.is_operator}
    computed = lines.keys() | _results(main)
    for leaf in returned_leaves(main):
        line = lines.get(leaf.text)
        operands = [part.text for part in line.leaves] if line else []
        tried = before.get(leaf.text, ())
        for other in dict.fromkeys(operands):
            if other in computed and other in known and other not in tried:
                yield Rewrite((Write(main.name, RETURN, leaf.number, other),))


_RESHAPES = r"view|_unsafe_view|reshape|expand"
_SHAPED = re.compile(rf"torch\.ops\.aten\.({_RESHAPES})\.")
"""Operators that take the shape of the result as an argument."""
_MOVES = re.compile(
    rf"torch\.ops\.aten\.({_RESHAPES}|permute|transpose|t|squeeze|unsqueeze|clone)\."
)
"""Operators that move elements without computing."""


def composed_views(main: Block, known: Likes) -> Iterator[Rewrite]:
    """Propose that the second of two consecutive views reads the input of the first."""
    lines = {line.name: line for line in main.statements if line.is_operator}
    for line in reversed(lines.values()):
        if not _SHAPED.match(line.callee):
            continue
        operand = line.leaves[0]
        made = lines.get(operand.text)
        if made is None or not _MOVES.match(made.callee):
            continue
        source = made.leaves[0].text
        if source in known and known[source] != known.get(operand.text):
            yield Rewrite((Write(main.name, line.name, operand.number, source),))


def _results(main: Block) -> set[str]:
    """Collect the names of projections."""
    results = (projections(main, line.name) for line in main.statements)
    return {line.name for selected in results for line in selected.values()}


def remove_operands(main: Block) -> Iterator[Rewrite]:
    """Propose to remove an operand, or to pass None; not in calls of subgraphs."""
    for line in reversed(main.statements):
        members = {f"self.{attribute}" for attribute, _ in main.members}
        if line.reads & members:
            continue
        kinds = {leaf.number: leaf.kind for leaf in line.leaves}
        for leaf in reversed(line.leaves):
            if leaf.kind is not LeafKind.VALUE:
                continue
            if leaf.parent is None and line.is_operator:
                yield _alternatives(main, line.name, leaf.number, ("", "None"))
            elif leaf.parent is not None and kinds[leaf.parent] is LeafKind.LIST:
                yield _alternatives(main, line.name, leaf.number, ("",))


def _alternatives(
    block: Block, line: str, leaf: int, texts: tuple[str, ...]
) -> Rewrite:
    """Propose several texts for a leaf; the first valid one is used."""
    changes = tuple(Write(block.name, line, leaf, text) for text in texts)
    return Rewrite(changes, partly=True)
