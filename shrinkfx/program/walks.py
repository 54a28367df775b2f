"""A graph search along edges that a function returns, which networkx lacks.

The operands of a value depend on the bypasses of the candidate or on the kind of the
value. There is no networkx graph with these edges, and building one takes longer than
the search (``benchmarks/walks.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

Place = TypeVar("Place", bound=Hashable)


def reached(
    starts: Iterable[Place], step: Callable[[Place], Iterable[Place]]
) -> list[Place]:
    """List the places reachable from ``starts`` in any number of steps, each once.

    The result includes the starts, and is in the order of a depth-first search.
    """
    visited: dict[Place, None] = {}
    stack = list(starts)
    while stack:
        place = stack.pop()
        if place not in visited:
            visited[place] = None
            stack += step(place)
    return list(visited)
