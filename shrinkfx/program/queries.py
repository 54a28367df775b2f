"""Questions to a program's graph that strategies and blame need.

Each is a networkx algorithm over ``Skeleton.graph``; none of them knows what
a candidate is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import networkx as nx

from shrinkfx.program.skeleton import Role, Skeleton


def backward_slice(skeleton: Skeleton, names: Iterable[str]) -> set[str]:
    """Collect ``names`` and everything they are computed from."""
    chosen = set(names)
    return chosen.union(*(nx.ancestors(skeleton.graph, name) for name in chosen))


def forward_slice(skeleton: Skeleton, names: Iterable[str]) -> set[str]:
    """Collect ``names`` and everything computed from them."""
    chosen = set(names)
    return chosen.union(*(nx.descendants(skeleton.graph, name) for name in chosen))


def convex_region(skeleton: Skeleton, names: Collection[str]) -> set[str]:
    """Add to ``names`` every node on a path from one of them to another."""
    return backward_slice(skeleton, names) & forward_slice(skeleton, names)


def dominators(skeleton: Skeleton, name: str) -> list[str]:
    """List the nodes that every path from an input to ``name`` goes through.

    Nearest first, ``name`` itself left out. Parameters and constants feed from
    the side and are no paths.
    """
    flow = skeleton.graph.copy()
    flow.remove_nodes_from(
        n for n in skeleton.graph if skeleton.node(n).role in _SIDE_FEEDS
    )
    entry = object()
    graph: nx.DiGraph[object] = nx.DiGraph(flow.edges)
    graph.add_nodes_from(flow)
    graph.add_edges_from((entry, n) for n in flow if flow.in_degree(n) == 0)
    nearest = nx.immediate_dominators(graph, entry)
    found: list[str] = []
    step: object = nearest.get(name, entry)
    while step is not entry and step is not None:
        found.append(str(step))
        step = nearest.get(step, entry)
    return found


def module_tree(skeleton: Skeleton) -> nx.DiGraph[str]:
    """Build the tree of module paths; each node's ``operators`` are its own calls.

    The root is ''. ``blocks.3.attn`` hangs below ``blocks.3`` below ``blocks``.
    """
    tree: nx.DiGraph[str] = nx.DiGraph()
    tree.add_node("", operators=[])
    for name in skeleton.operators:
        path = ""
        for part in filter(None, skeleton.node(name).scope.split(".")):
            parent, path = path, f"{path}.{part}" if path else part
            if path not in tree:
                tree.add_node(path, operators=[])
                tree.add_edge(parent, path)
        tree.nodes[path]["operators"].append(name)
    return tree


def storage_groups(skeleton: Skeleton) -> list[list[str]]:
    """Group the nodes that share memory, in program order; loners are left out."""
    groups: dict[int, list[str]] = {}
    for name in skeleton.graph:
        storage = skeleton.node(name).storage
        if storage is not None:
            groups.setdefault(storage, []).append(name)
    return [group for group in groups.values() if len(group) > 1]


_SIDE_FEEDS = frozenset({Role.PARAMETER, Role.BUFFER, Role.CONSTANT, Role.SUBGRAPH})
