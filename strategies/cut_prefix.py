"""Start late: drop all operators before a point of the program.

    x -> a -> b -> c -> d        becomes        b' -> c -> d

Values that cross the cut become inputs with the values of the input program's eager
run.
"""

from __future__ import annotations

from collections.abc import Iterator

from shrinkfx.program.edits import Drop
from shrinkfx.program.view import View

_LEAST = 8
"""Smaller parts are left to ``drop_nodes``."""


class CutPrefix:
    """Propose to drop the first half of the operators, repeated while it succeeds.

    Quarters and eighths took more queries than they saved. A half with a suspect stays.
    """

    name = "cut_prefix"
    combines = False

    def propose(self, view: View) -> Iterator[Drop]:
        operators = view.operators
        length = len(operators) // 2
        half = frozenset(operators[:length])
        if length >= _LEAST and not view.suspicion(half):
            yield Drop(half)
