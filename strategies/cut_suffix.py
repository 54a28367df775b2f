"""Return early: drop all that comes after a point of the program.

    x -> a -> b -> c -> d        becomes        x -> a -> b

What a program computes after the culprit only hands its result on. Halving finds
the place in few questions, and each success makes all later checks cheaper.
"""

from __future__ import annotations

from collections.abc import Iterator

from shrinkfx.program.edits import Drop
from shrinkfx.program.view import View

_LEAST = 8
"""Operators that are worth a question; fewer are left to ``drop_nodes``."""


class CutSuffix:
    """Propose to drop the last half of the operators, again as long as that works.

    Less is left to ``drop_nodes``, whose bundles begin there: a quarter and an
    eighth took more questions than they saved. A half with a suspect in it stays.
    """

    name = "cut_suffix"
    combines = False

    def propose(self, view: View) -> Iterator[Drop]:
        operators = view.operators
        length = len(operators) // 2
        half = frozenset(operators[-length:])
        if length >= _LEAST and not view.suspicion(half):
            yield Drop(half)
