"""Updates of statements whose operand has lost dims of size 1."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from shrinkfx.program.listing.changes import Write
from shrinkfx.program.listing.printed_program import MAIN
from shrinkfx.program.listing.statements import Leaf, LeafKind, Statement
from shrinkfx.worker.listing.arguments import arguments_of
from shrinkfx.worker.listing.program_trace import shapes_of
from shrinkfx.worker.listing.upstream import Values

_DIMS = re.compile(r"dims?\d?|.*_dim|axis")
"""Arguments that number dims."""

_SIZES = re.compile(r"\w*size|\w*shape|repeats")
"""Lists with an item for each dim, or for the last dims."""


def renumber_dims(statement: Statement, was: Values, now: Values) -> tuple[Write, ...]:
    """Renumber the dims in a statement of the main block, if an operand lost some.

    Args:
        was: the values before the change.
        now: the values after it.
    """
    for leaf in statement.leaves:
        old, new = (values.get((MAIN, leaf.text)) for values in (was, now))
        if leaf.kind is LeafKind.VALUE and old is not None and new is not None:
            shapes = [*shapes_of(old)[:1], *shapes_of(new)[:1]]
            if len(shapes) == 2 and (removed := _lost(*shapes)):
                return tuple(_writes(statement, len(shapes[0]), removed))
    return ()


def _lost(old: Sequence[int], new: Sequence[int]) -> list[int]:
    """List the removed dims of size 1; [] if anything else has changed."""
    removed, remaining = [], list(new)
    for dim, size in enumerate(old):
        more = len(old) - dim > len(remaining)
        if remaining[:1] == [size] and not (more and size == 1):
            remaining.pop(0)
        else:
            removed.append(dim)
    return removed if not remaining and all(old[dim] == 1 for dim in removed) else []


def _writes(statement: Statement, rank: int, removed: Sequence[int]) -> Iterator[Write]:
    lists = {x.number: x for x in statement.leaves if x.kind is LeafKind.LIST}
    for leaf in statement.leaves:
        name, kind = arguments_of(statement).get(leaf.number, ("", ""))
        if leaf.kind is not LeafKind.NUMBER or "nt" not in kind or not _is_whole(leaf):
            continue
        items = [x for x in statement.leaves if x.parent == leaf.parent in lists]
        if _DIMS.fullmatch(name):
            text = _renumbered(int(leaf.text), rank, removed)
            if not any(_renumbered(int(x.text), rank, removed) for x in items):
                text = text or leaf.text  # an empty list may stand for all dims
        elif _SIZES.fullmatch(name) and items and leaf.text in ("1", "-1"):
            place = items.index(leaf) + rank - len(items)
            text = "" if place in removed else leaf.text
        else:
            continue
        if text != leaf.text and (text or leaf.parent in lists):
            yield Write(MAIN, statement.name, leaf.number, text)


def _is_whole(leaf: Leaf) -> bool:
    return leaf.text.lstrip("-").isdigit()


def _renumbered(dim: int, rank: int, removed: Sequence[int]) -> str:
    """Return the new number of a dim, or '' for a removed dim."""
    place = dim % rank
    if place in removed:
        return ""
    new_dim = place - sum(each < place for each in removed)
    return str(new_dim if dim >= 0 else new_dim - rank + len(removed))
