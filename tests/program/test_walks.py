"""A walk along edges that a function gives."""

from __future__ import annotations

import networkx as nx
from hypothesis import given
from hypothesis import strategies as st

from shrinkfx.program.skeleton import reached

EDGES = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)))


@given(EDGES, st.lists(st.integers(0, 9)))
def test_walk_reaches_same_nodes_as_networkx(
    edges: list[tuple[int, int]], starts: list[int]
) -> None:
    graph: nx.DiGraph[int] = nx.DiGraph()
    graph.add_nodes_from(range(10))
    graph.add_edges_from(edges)
    found = reached(starts, graph.successors)
    assert len(found) == len(set(found))
    below = (nx.descendants(graph, start) for start in starts)
    assert set(found) == set(starts).union(*below)


def test_walk_is_depth_first_and_visits_each_node_once() -> None:
    edges = {"a": "bc", "b": "d", "c": "ea", "d": "", "e": ""}
    assert reached("a", edges.__getitem__) == ["a", "c", "e", "b", "d"]
