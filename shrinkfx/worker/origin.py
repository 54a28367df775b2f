"""Where a node comes from: a line of the user's code, and the module that called it."""

from __future__ import annotations

import operator
import re
from pathlib import Path

from torch import fx

_KEYS = ("stack_trace", "nn_module_stack")
"""What export notes of that."""


def scope_of(node: fx.Node) -> str:
    """Name the module that called it: ``blocks.3.attn``, or ''."""
    stack = node.meta.get("nn_module_stack") or {}
    path = str(next(reversed(stack.values()))[0]) if stack else ""
    return re.sub(r"^(L\['self'\]|L__self__)\.?", "", path)


def source_of(node: fx.Node) -> str:
    """Find the innermost line of the user's code: ``nn.Linear`` is not theirs."""
    frames = re.findall(
        r'File "([^"]+)", line (\d+)', node.meta.get("stack_trace") or ""
    )
    written = [f for f in frames if not f[0].startswith("<")]
    own = [f for f in written if "/site-packages/torch/" not in f[0]] or written
    return f"{Path(own[-1][0]).name}:{own[-1][1]}" if own else ""


def origin_of(node: fx.Node) -> str:
    """Say where an operator comes from: ``model.py:14, blocks.3.attn``, or ''."""
    if node.op != "call_function" or node.target is operator.getitem:
        return ""
    return ", ".join(filter(None, [source_of(node), scope_of(node)]))


def come_from(node: fx.Node, origin: str) -> None:
    """Have a node come from where ``origin_of`` has said."""
    for key in _KEYS:
        node.meta.pop(key, None)
    source, scope = _ORIGIN.fullmatch(origin).groups()  # type: ignore[union-attr]
    if source:
        file, line = source.rsplit(":", 1)
        node.meta["stack_trace"] = f'  File "{file}", line {line}, in forward\n'
    if scope:
        node.meta["nn_module_stack"] = {"origin": (scope, "torch.nn.Module")}


_ORIGIN = re.compile(r"([^,]+:\d+)?(?:, )?(.*)", re.DOTALL)


def hand_on_origins(before: fx.GraphModule, after: fx.GraphModule) -> None:
    """Have a program that was exported anew know where its operators come from.

    Only in graphs that call the same operators in the same order.
    """
    graphs = graphs_of(after)
    for name, graph in graphs_of(before).items():
        if name in graphs:
            _hand_on_origins(graph, graphs[name])


def graphs_of(module: fx.GraphModule) -> dict[str, fx.Graph]:
    """List a graph and those of its subgraphs, by name; '' is the name of the first."""
    modules = module.named_modules()
    return {name: m.graph for name, m in modules if isinstance(m, fx.GraphModule)}


def _hand_on_origins(before: fx.Graph, after: fx.Graph) -> None:
    old, new = calls(before), calls(after)
    if [node.target for node in old] != [node.target for node in new]:
        return
    for known, node in zip(old, new, strict=True):
        for key in _KEYS:
            node.meta.pop(key, None)
            if key in known.meta:
                node.meta[key] = known.meta[key]


def calls(graph: fx.Graph) -> list[fx.Node]:
    """List the operators; how sizes are read and checked changes with each export."""
    return [
        node
        for node in graph.nodes
        if getattr(node.target, "namespace", "")
        and not str(node.target).startswith(_OF_SIZES)
    ]


_OF_SIZES = ("aten.sym_", "aten._assert_")
