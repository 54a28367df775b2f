"""Put a plain operator in the place of a dear one.

    a -> attention -> b        becomes        a -> abs -> b
    a -> mm -> b               becomes        mm' -> abs -> b

For the bug that needs some operator there and not that one. ``mm'`` is a new
input that holds the value ``mm`` had in the original's eager run.
"""

from __future__ import annotations

from collections.abc import Iterator

from shrinkfx.program.edits import Replace
from shrinkfx.program.view import View


class ReplaceOperators:
    """Propose for each dear operator a plain one on a value of the same type.

    That is an operand if one has that type, else its own value from outside. Suspects
    come last.
    """

    name = "replace_operators"
    combines = False
    """They could be bundled. But here most of what is left is needed as it is, so
    a bundle would hide the one that is not."""

    def propose(self, view: View) -> Iterator[Replace]:
        nodes = reversed(view.replaceable)
        for node in sorted(nodes, key=lambda n: view.suspicion([n])):
            operands = view.operands(node)
            same = (v for v in operands if view.same_value_type(node, v))
            yield Replace(node, next(same, node))
