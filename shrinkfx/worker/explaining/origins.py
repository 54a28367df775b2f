"""Map nodes of Inductor's graphs to nodes of the program."""

from __future__ import annotations

from torch import fx

from shrinkfx.worker.private_api import codegen_api


def find_origins(node: fx.Node) -> list[str]:
    """Return the names of the program's nodes that a node of Inductor's comes from."""
    if codegen_api.FEATURE.missing:
        return [node.name]
    graph = codegen_api.debug._pre_grad_graph_id
    if id(node.graph) == graph:
        return [node.name]
    mapping = codegen_api.debug._inductor_post_to_pre_grad_nodes.get("postToPre", {})
    if node.name in mapping:
        return list(mapping[node.name])
    names: list[str] = []
    sources = list(node.meta.get("from_node", ()))
    while sources:
        source = sources.pop()
        if source.graph_id == graph:
            names.append(source.name)
        sources += source.from_node
    return names or [node.name]
