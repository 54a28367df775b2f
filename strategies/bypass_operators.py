"""Remove an operator by handing its users one of its own operands.

    a -> relu -> b        becomes        a -> b

The edit that frees what a cut would hide: the graph stays connected, so a bug
that needs a producer and a distant user survives, and no input is invented.
"""

from __future__ import annotations

from collections.abc import Iterator

from shrinkfx.program.edits import Bypass
from shrinkfx.program.view import View


class BypassOperators:
    """Propose to hand on an operand that has the type of the operator's value.

    Last operators come first: an early success shortens the longest chain. Suspects
    come after all others.
    Where several of a node's bypasses are bundled, the earliest value is taken.
    """

    name = "bypass_operators"
    combines = True

    def propose(self, view: View) -> Iterator[Bypass]:
        nodes = reversed(view.operators)
        for node in sorted(nodes, key=lambda n: view.suspicion([n])):
            for operand in dict.fromkeys(view.operands(node)):
                if view.same_value_type(node, operand):
                    yield Bypass(node, operand)
