"""Start late: drop all that comes before a point of the program.

    x -> a -> b -> c -> d        becomes        b' -> c -> d

Values that cross the cut become inputs with the values they had in the original's
eager run.
"""

from __future__ import annotations

from collections.abc import Iterator

from shrinkfx.program.edits import Drop
from shrinkfx.program.view import View

_LEAST = 8
"""Operators that are worth a question; fewer are left to ``drop_nodes``."""


class CutPrefix:
    """Propose to drop the first half of the operators, again as long as that works.

    A quarter and an eighth took more questions than they saved. A half with a suspect
    in it stays.
    """

    name = "cut_prefix"
    combines = False

    def propose(self, view: View) -> Iterator[Drop]:
        operators = view.operators
        length = len(operators) // 2
        half = frozenset(operators[:length])
        if length >= _LEAST and not view.suspicion(half):
            yield Drop(half)
