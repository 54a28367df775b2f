"""The origin of a node: a line of the user's code, and the module that called it."""

from __future__ import annotations

import operator
import re
from pathlib import Path

from torch import fx

_KEYS = ("stack_trace", "nn_module_stack")
"""The keys of ``Node.meta`` in which export records the origin."""


def scope_of(node: fx.Node) -> str:
    """Return the path of the module that called the node: ``blocks.3.attn``, or ''."""
    stack = node.meta.get("nn_module_stack") or {}
    path = str(next(reversed(stack.values()))[0]) if stack else ""
    return re.sub(r"^(L\['self'\]|L__self__)\.?", "", path)


def source_of(node: fx.Node) -> str:
    """Return the innermost line of the user's code, such as ``model.py:14``, or ''.

    Frames of torch, such as those of ``nn.Linear``, are skipped.
    """
    frames = re.findall(
        r'File "([^"]+)", line (\d+)', node.meta.get("stack_trace") or ""
    )
    written = [f for f in frames if not f[0].startswith("<")]
    user_code = [f for f in written if "/site-packages/torch/" not in f[0]] or written
    return f"{Path(user_code[-1][0]).name}:{user_code[-1][1]}" if user_code else ""


def origin_of(node: fx.Node) -> str:
    """Return the origin of an operator: ``model.py:14, blocks.3.attn``, or ''."""
    if node.op != "call_function" or node.target is operator.getitem:
        return ""
    return ", ".join(filter(None, [source_of(node), scope_of(node)]))


def set_origin(node: fx.Node, origin: str) -> None:
    """Set the origin of a node to a string that ``origin_of`` returned."""
    for key in _KEYS:
        node.meta.pop(key, None)
    source, scope = _ORIGIN.fullmatch(origin).groups()  # type: ignore[union-attr]
    if source:
        file, line = source.rsplit(":", 1)
        node.meta["stack_trace"] = f'  File "{file}", line {line}, in forward\n'
    if scope:
        node.meta["nn_module_stack"] = {"origin": (scope, "torch.nn.Module")}


_ORIGIN = re.compile(r"([^,]+:\d+)?(?:, )?(.*)", re.DOTALL)


def copy_origins(before: fx.GraphModule, after: fx.GraphModule) -> None:
    """Copy the origins of operators to a program that was exported again.

    Only graphs that call the same operators in the same order get them.
    """
    graphs = graphs_of(after)
    for name, graph in graphs_of(before).items():
        if name in graphs:
            _copy_graph_origins(graph, graphs[name])


def graphs_of(module: fx.GraphModule) -> dict[str, fx.Graph]:
    """Map names to the graph and its subgraphs; '' is the graph itself."""
    modules = module.named_modules()
    return {name: m.graph for name, m in modules if isinstance(m, fx.GraphModule)}


def _copy_graph_origins(before: fx.Graph, after: fx.Graph) -> None:
    old, new = operator_nodes(before), operator_nodes(after)
    if [node.target for node in old] != [node.target for node in new]:
        return
    for known, node in zip(old, new, strict=True):
        for key in _KEYS:
            node.meta.pop(key, None)
            if key in known.meta:
                node.meta[key] = known.meta[key]


def operator_nodes(graph: fx.Graph) -> list[fx.Node]:
    """Return the operators of a graph, without those that read or check sizes.

    Each export reads and checks sizes in another way.
    """
    return [
        node
        for node in graph.nodes
        if getattr(node.target, "namespace", "")
        and not str(node.target).startswith(_SIZE_OPERATORS)
    ]


_SIZE_OPERATORS = ("aten.sym_", "aten._assert_")
