"""Remove an operator of a branch or a body.

    while_loop(c, (h -> mm -> tanh), x)   becomes   while_loop(c, (h -> tanh), x)

A ``cond`` or a loop is one operator, and goes or stays with all that is inside. Where
it must stay, most of what is inside need not.
"""

from __future__ import annotations

from collections.abc import Iterator

from shrinkfx.program.edits import Bypass
from shrinkfx.program.subgraphs import graph_of
from shrinkfx.program.view import View


class BypassInside:
    """Propose to hand on an operand of the type of the value, else any such value.

    Last operators come first, as outside. There may be no operand of that type where
    an earlier value is: most often what the body began with.
    """

    name = "bypass_inside"
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
    """Find the first value of the same graph and type; it leaves the most behind."""
    before = view.subgraph_nodes[: view.subgraph_nodes.index(node)]
    return [
        value
        for value in before
        if graph_of(value) == graph_of(node) and view.same_value_type(node, value)
    ][:1]
