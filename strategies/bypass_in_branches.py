"""Remove an operator of a branch or of a loop body.

    while_loop(c, (h -> mm -> tanh), x)   becomes   while_loop(c, (h -> tanh), x)

A ``cond`` or a loop counts as one operator, which stays or goes with everything inside.
If it must stay, most of the operators inside may still go.
"""

from __future__ import annotations

from collections.abc import Iterator

from shrinkfx.program.edits import Bypass
from shrinkfx.program.skeleton import graph_of
from shrinkfx.program.view import View


class BypassInBranches:
    """Propose to bypass an inner operator with an operand or value of its type.

    Last operators come first, as in the main graph. If no operand has the type, an
    earlier value may: most often an argument of the body.
    """

    name = "bypass_in_branches"
    combines = True

    def propose(self, view: View) -> Iterator[Bypass]:
        nodes = [
            name for name in view.subgraph_nodes if view.skeleton.node(name).operands
        ]
        for node in reversed(nodes):
            fitting = [v for v in view.operands(node) if view.same_value_type(node, v)]
            for value in dict.fromkeys(fitting) or _earlier(view, node):
                yield Bypass(node, value)


def _earlier(view: View, node: str) -> list[str]:
    """Find the first value of the same graph and type; it frees the most operators."""
    before = view.subgraph_nodes[: view.subgraph_nodes.index(node)]
    return [
        value
        for value in before
        if graph_of(value) == graph_of(node) and view.same_value_type(node, value)
    ][:1]
