"""Return early: drop all operators after a point of the program.

    x -> a -> b -> c -> d        becomes        x -> a -> b

The operators after the culprit only pass its result on. Halving finds the place in few
queries, and each success makes all later checks cheaper.
"""

from __future__ import annotations

from collections.abc import Iterator

from shrinkfx.program.edits import Drop
from shrinkfx.program.view import View

_LEAST = 8
"""Smaller parts are left to ``drop_nodes``."""


class CutSuffix:
    """Propose to drop the last half of the operators, repeated while it succeeds.

    Smaller parts are left to ``drop_nodes``, whose bundles begin at the end: quarters
    and eighths took more queries than they saved. A half with a suspect stays.
    """

    name = "cut_suffix"
    combines = False

    def propose(self, view: View) -> Iterator[Drop]:
        operators = view.operators
        length = len(operators) // 2
        half = frozenset(operators[-length:])
        if length >= _LEAST and not view.suspicion(half):
            yield Drop(half)
