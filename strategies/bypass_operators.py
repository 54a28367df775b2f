"""Remove an operator by handing its users a value that it was computed from.

    a -> relu -> b             becomes        a -> b
    a -> to -> to -> b         becomes        a -> b
    a -> expand -> add         becomes        a -> add

The edit that frees what a cut would hide: the graph stays connected, so a bug
that needs a producer and a distant user survives, and no input is invented.
"""

from __future__ import annotations

from collections.abc import Iterator

from shrinkfx.program.edits import Bypass
from shrinkfx.program.view import View


class BypassOperators:
    """Propose to hand on an operand that has the type of the operator's value.

    Where none has, the nearest values above that do: a cast goes with the cast back,
    a layer between two of its width as a whole. Where all users broadcast, what the
    operator only repeats will do as well. Last operators come first: an early
    success shortens the longest chain. Suspects come after all others.
    Where several of a node's bypasses are bundled, the earliest value is taken.
    """

    name = "bypass_operators"
    combines = True

    def propose(self, view: View) -> Iterator[Bypass]:
        nodes = reversed(view.operators)
        for node in sorted(nodes, key=lambda n: view.suspicion([n])):
            for value in _nearest(view, node):
                yield Bypass(node, value)


def _nearest(view: View, node: str) -> list[str]:
    """List the values that its users could get which are the fewest steps above it."""
    kept, seen = frozenset(view.operators), frozenset[str]()
    values = dict.fromkeys(view.operands(node))
    while values:
        if found := [v for v in values if view.can_bypass(node, v)]:
            return found
        seen |= values.keys()
        above = (o for v in values if v in kept for o in view.operands(v))
        values = dict.fromkeys(v for v in above if v not in seen)
    return []
