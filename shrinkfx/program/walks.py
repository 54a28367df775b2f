"""The one walk that networkx does not have: along edges that a function gives.

What a value is computed from depends on the candidate, whose bypasses lead elsewhere,
or on the kind of the value. There is no graph of that to hand to networkx, and to make
one takes longer than the walk (``benchmarks/walks.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

Place = TypeVar("Place", bound=Hashable)


def reached(
    starts: Iterable[Place], step: Callable[[Place], Iterable[Place]]
) -> list[Place]:
    """List what is reached from ``starts`` by any number of steps, each once.

    The starts themselves too; in the order of a depth-first search.
    """
    found: dict[Place, None] = {}
    stack = list(starts)
    while stack:
        place = stack.pop()
        if place not in found:
            found[place] = None
            stack += step(place)
    return list(found)
