"""Simplify the arguments of operators.

    max_pool2d(x, [3, 3], [2, 2], [0, 0], [1, 1], True)    becomes
    max_pool2d(x, [1, 1])

Arguments with a default are omitted; numbers become 1 or 0, and lists become empty or
lists of these. A reader asks for each 37 why it is not 1.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from shrinkfx.program.edits import Rewrite
from shrinkfx.program.listing.changes import Write
from shrinkfx.program.listing.printed_program import (
    Block,
    Kind,
    Leaf,
    LeafKind,
    Statement,
    all_calls,
)
from shrinkfx.program.listing.rewrites import loop_control_statements
from shrinkfx.program.view import View

_DTYPE = re.compile(r"torch\.(bool|(b?float|u?int|complex)\d+\w*)")


class SimplifyArguments:
    """Propose the simplest text that fits for each argument, the last argument first.

    It leaves alone values that a loop's condition depends on, because the loop may
    never end, and the arguments of branches and bodies.
    """

    name = "simplify_arguments"
    combines = True
    kind = Kind.ARGUMENTS

    def propose(self, view: View) -> Iterator[Rewrite]:
        calls = {(c.caller, c.statement.name) for c in all_calls(view.listing)}
        excluded = loop_control_statements(view.listing) | calls
        for block in reversed(view.listing.blocks):
            for line in reversed(block.statements):
                if line.is_operator and (block.name, line.name) not in excluded:
                    yield from _plainer(block, line)


def _plainer(block: Block, line: Statement) -> Iterator[Rewrite]:
    for leaf in reversed(line.leaves):
        texts = _texts(leaf, line)
        changes = tuple(Write(block.name, line.name, leaf.number, t) for t in texts)
        if changes:
            yield Rewrite(changes, partly=True)


def _texts(leaf: Leaf, line: Statement) -> list[str]:
    """List the possible texts of an argument, the simplest first."""
    parts = [part for part in line.leaves if part.parent == leaf.number]
    texts = [""] if leaf.parent is None else []
    match leaf.kind:
        case LeafKind.LIST if all(part.kind is LeafKind.NUMBER for part in parts):
            return [*texts, "[]"] if parts else texts
        case LeafKind.WORD:
            return [*texts, "torch.float32"] if _is_dtype(leaf) else texts
        case LeafKind.NUMBER:
            return [*texts, "1", "0"] if _is_number(leaf) else texts
    return []


def _is_number(leaf: Leaf) -> bool:
    """Tell whether an argument is a number other than 0 and 1."""
    plain = {"0", "1", "None", "True", "False"}
    return leaf.text not in plain and leaf.text[:1] not in "'\""


def _is_dtype(leaf: Leaf) -> bool:
    return leaf.text != "torch.float32" and _DTYPE.fullmatch(leaf.text) is not None
