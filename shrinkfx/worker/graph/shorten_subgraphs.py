"""Removal of the operators that a candidate bypasses inside subgraphs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import fx

from shrinkfx.program.candidate import Candidate


def shorten_subgraphs(
    root: fx.GraphModule, candidate: Candidate, nodes: Mapping[str, fx.Node]
) -> bool:
    """Replace each subgraph that has bypassed nodes by a shorter one.

    Args:
        nodes: the nodes of ``root``, by their names in the candidate.

    Returns:
        Whether a subgraph was replaced.
    """
    found = False
    for name, node in nodes.items():
        paths = (value.startswith(f"{name}.") for value in candidate.bypass)
        if _holds_a_graph(node) and any(paths):
            inner = root.get_submodule(str(node.target))
            assert isinstance(inner, fx.GraphModule)
            # Another operator may use the same subgraph unchanged.
            if any(_names_alike(other, node) for other in root.graph.nodes):
                node.target = f"{node.target}_shortened"
            root.add_submodule(str(node.target), _shortened(inner, name, candidate))
            found = True
    if found:
        root.recompile()
    return found


def _shortened(
    module: fx.GraphModule, path: str, candidate: Candidate
) -> fx.GraphModule:
    graph, new = fx.Graph(), dict[str, fx.Node]()
    for node in module.graph.nodes:
        copied = graph.node_copy(
            node, lambda n: new[candidate.resolve(f"{path}.{n.name}")]
        )
        new[f"{path}.{node.name}"] = copied
    graph.eliminate_dead_code()
    shorter = fx.GraphModule(module, graph)
    shorten_subgraphs(shorter, candidate, new)
    return shorter


def _holds_a_graph(node: Any) -> bool:
    return isinstance(node, fx.Node) and node.op == "get_attr" and bool(node.users)


def _names_alike(other: fx.Node, node: fx.Node) -> bool:
    is_another = other is not node and other.op == "get_attr"
    return is_another and other.target == node.target
