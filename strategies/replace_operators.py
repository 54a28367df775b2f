"""Replace an expensive operator by a simple one.

    a -> attention -> b        becomes        a -> abs -> b
    a -> mm -> b               becomes        mm' -> abs -> b

For a bug that needs any operator there, but not that one. ``mm'`` is a new input with
the value that ``mm`` had in the input program's eager run.
"""

from __future__ import annotations

from collections.abc import Iterator

from shrinkfx.program.edits import Replace
from shrinkfx.program.view import View


class ReplaceOperators:
    """Propose for each expensive operator a simple one on a value of the same type.

    That value is an operand if one has that type, else the operator's own value as an
    input. Suspects come last.
    """

    name = "replace_operators"
    combines = False
    """Bundles are possible, but at this point most operators are needed as they are, so
    a
    bundle would hide the one that is not."""

    def propose(self, view: View) -> Iterator[Replace]:
        nodes = reversed(view.replaceable)
        for node in sorted(nodes, key=lambda n: view.suspicion([n])):
            operands = view.operands(node)
            same = (v for v in operands if view.same_value_type(node, v))
            yield Replace(node, next(same, node))
