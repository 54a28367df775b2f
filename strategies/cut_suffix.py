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
    """Propose to drop the last half of the operators, a quarter, an eighth."""

    name = "cut_suffix"
    combines = False

    def propose(self, view: View) -> Iterator[Drop]:
        operators = view.operators
        for part in (2, 4, 8):
            if (length := len(operators) // part) >= _LEAST:
                yield Drop(frozenset(operators[-length:]))
