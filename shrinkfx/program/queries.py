"""Graph queries for strategies.

They concern the operators of the input program; operators that a candidate bypassed are
still there. Every result contains ``names``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import chain

import networkx as nx

from shrinkfx.program.skeleton import Role, Skeleton
from shrinkfx.program.walks import reached


def upstream(program: Skeleton, names: Iterable[str], hops: int) -> frozenset[str]:
    """Add the producers of operators, up to ``hops`` steps upstream.

    The computation of an index or a size is no step; it is added at any distance.
    """
    edge = visited = _with_indices(program, names)
    for _ in range(hops):
        above = {p for name in edge for p in _reads(program, name)}
        edge = _with_indices(program, above - visited)
        visited = visited | edge
    return frozenset(visited)


def ancestors(program: Skeleton, names: Iterable[str]) -> frozenset[str]:
    """Add all ancestors of operators."""
    # A single search: calling nx.ancestors for each of 24 takes 90 ms, and this takes
    # 5.
    above = nx.bfs_layers(program.graph.reverse(copy=False), list(names))
    return frozenset(chain(*above)).intersection(program.operators)


def with_users(program: Skeleton, names: Collection[str]) -> frozenset[str]:
    """Add the operators that read a value of these operators."""
    users = (n for n in program.operators if _reads(program, n).keys() & names)
    return frozenset(names).union(users)


def _with_indices(program: Skeleton, names: Iterable[str]) -> set[str]:
    """Add the operators that compute indices and sizes which these operators read."""

    def indices(name: str) -> list[str]:
        return [p for p, is_index in _reads(program, name).items() if is_index]

    return set(reached(names, indices))


def _reads(program: Skeleton, name: str) -> dict[str, bool]:
    """Map the operators that one reads to whether it reads only indices or sizes."""

    def through_sizes(read: tuple[str, bool]) -> list[tuple[str, bool]]:
        producer = program.node(program.producer(read[0]))
        is_size = producer.role is Role.SIZE
        return [(value, True) for value in producer.operands] if is_size else []

    operators: dict[str, bool] = {}
    values = [(v, _is_index(program, v)) for v in program.node(name).operands]
    for value, is_index in reached(values, through_sizes):
        producer = program.producer(value)
        if program.node(producer).role is Role.OPERATOR:
            operators[producer] = is_index and operators.get(producer, True)
    return operators


def _is_index(program: Skeleton, name: str) -> bool:
    """Return whether a value is a number, or a tensor of integers."""
    value = program.node(name).value
    return value is None or "int" in value.dtype
