"""Planted: Inductor refuses a chain of elementwise operators, and nothing less of it.

The chains of ``CHAINS`` need 1, 3 and 8 operators, each on the result of the one
before. Importing this twice is harmless; eager never sees it.
"""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch._inductor.graph import GraphLowering

CHAINS = {
    1: ("erfinv",),
    3: ("erf", "atan", "sinh"),
    8: ("atan", "tan", "asinh", "sinh", "cos", "sin", "tanh", "erf"),
}


def ends_chain(node: torch.fx.Node, names: tuple[str, ...]) -> bool:
    """Tell whether a node is the last of a chain with these operators."""
    here: Any = node
    for name in reversed(names):
        if getattr(here, "target", None) is not getattr(torch.ops.aten, name).default:
            return False
        here = here.args[0]
    return True


def refuse_chains(lower: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap the lowering of a node so that it raises at the end of a chain."""

    @functools.wraps(lower)
    def run_node(self: GraphLowering, node: torch.fx.Node) -> Any:
        for names in CHAINS.values():
            if ends_chain(node, names):
                raise NotImplementedError(f"planted: cannot lower {'-'.join(names)}")
        return lower(self, node)

    run_node.planted = True  # type: ignore[attr-defined]
    return run_node


if not hasattr(GraphLowering.run_node, "planted"):
    GraphLowering.run_node = refuse_chains(GraphLowering.run_node)  # type: ignore[method-assign]
