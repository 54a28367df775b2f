"""Remove an operator by giving its users a value that it was computed from.

    a -> relu -> b             becomes        a -> b
    a -> to -> to -> b         becomes        a -> b
    a -> expand -> add         becomes        a -> add

Because the graph stays connected, this edit works where a cut hides the failure: a bug
that needs a producer and a distant user stays, and no input is added.
"""

from __future__ import annotations

from collections.abc import Iterator

from shrinkfx.program.edits import Bypass
from shrinkfx.program.view import View


class BypassOperators:
    """Propose to bypass each operator with an operand of the type of its value.

    If no operand has that type, the nearest values above with that type take its place:
    so a cast goes with the cast back, and a layer goes whole between two values of its
    width. If the operator only repeats a value and all users broadcast, that value
    works too. Last operators come first, because an early success shortens the longest
    chain. Suspects come after all others. If several bypasses of one operator are
    bundled, the earliest value is taken.
    """

    name = "bypass_operators"
    combines = True

    def propose(self, view: View) -> Iterator[Bypass]:
        nodes = reversed(view.operators)
        for node in sorted(nodes, key=lambda n: view.suspicion([n])):
            for value in _nearest(view, node):
                yield Bypass(node, value)


def _nearest(view: View, node: str) -> list[str]:
    """List the values fewest steps above an operator that its users could read."""
    operators, seen = frozenset(view.operators), frozenset[str]()
    values = dict.fromkeys(view.operands(node))
    while values:
        if readable := [v for v in values if view.can_bypass(node, v)]:
            return readable
        seen |= values.keys()
        above = (o for v in values if v in operators for o in view.operands(v))
        values = dict.fromkeys(v for v in above if v not in seen)
    return []
