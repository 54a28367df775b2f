"""Questions to a program's graph that strategies need.

They are about the operators of the original program: what a candidate has bypassed is
still there. ``names`` belong to every answer.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import networkx as nx

from shrinkfx.program.skeleton import Role, Skeleton


def upstream(program: Skeleton, names: Iterable[str], hops: int) -> frozenset[str]:
    """Add the producers of operators, so many steps up.

    What computes an index or a size is no step: it comes along at any distance.
    """
    edge = found = _with_indices(program, set(names))
    for _ in range(hops):
        above = {p for name in edge for p in _reads(program, name)}
        edge = _with_indices(program, above - found)
        found = found | edge
    return frozenset(found)


def ancestors(program: Skeleton, names: Iterable[str]) -> frozenset[str]:
    """Add all that operators are computed from."""
    chosen = set(names)
    above = chosen.union(*(nx.ancestors(program.graph, name) for name in chosen))
    return frozenset(above.intersection(program.operators))


def with_users(program: Skeleton, names: Collection[str]) -> frozenset[str]:
    """Add the operators that read a value of one of these."""
    users = (n for n in program.operators if _reads(program, n).keys() & names)
    return frozenset(names).union(users)


def _with_indices(program: Skeleton, names: set[str]) -> set[str]:
    """Add what computes the indices and sizes that operators read."""
    found: set[str] = set()
    stack = list(names)
    while stack:
        name = stack.pop()
        if name not in found:
            found.add(name)
            stack += [p for p, index in _reads(program, name).items() if index]
    return found


def _reads(program: Skeleton, name: str) -> dict[str, bool]:
    """Map the operators that one reads to whether it reads only indices or sizes."""
    found: dict[str, bool] = {}
    stack = [(v, _is_index(program, v)) for v in program.node(name).operands]
    while stack:
        value, index = stack.pop()
        producer = program.producer(value)
        role = program.node(producer).role
        if role is Role.OPERATOR:
            found[producer] = index and found.get(producer, True)
        elif role is Role.SIZE:
            stack += [(v, True) for v in program.node(producer).operands]
    return found


def _is_index(program: Skeleton, name: str) -> bool:
    """Tell whether a value is a number, or a tensor of integers."""
    value = program.node(name).value
    return value is None or "int" in value.dtype
