"""Planted: Inductor refuses a chain of operators, or makes its result larger.

The chains of ``CHAINS`` need 1, 3 or 8 elementwise operators, each on the result of the
one before, and nothing less of it fails. Importing this twice is harmless; eager never
sees it.
"""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch._inductor.graph import GraphLowering
from torch._inductor.lowering import lowerings

CHAINS = {
    "1": ("erfinv",),
    "3": ("erf", "atan", "sinh"),
    "8": ("atan", "tan", "asinh", "sinh", "cos", "sin", "tanh", "erf"),
    "3-wrong": ("sinh", "atan", "erf"),
}
"""By name. Those that end in ``wrong`` are compiled, and give a wrong result."""


def ends_chain(node: torch.fx.Node, names: tuple[str, ...]) -> bool:
    """Tell whether a node is the last of a chain with these operators."""
    here: Any = node
    for name in reversed(names):
        if getattr(here, "target", None) is not getattr(torch.ops.aten, name).default:
            return False
        here = here.args[0]
    return True


def with_planted_chains(lower: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap the lowering of a node so that it goes wrong at the end of a chain."""

    @functools.wraps(lower)
    def run_node(self: GraphLowering, node: torch.fx.Node) -> Any:
        ends = [name for name, chain in CHAINS.items() if ends_chain(node, chain)]
        if any(name.endswith("wrong") for name in ends):
            return lowerings[torch.ops.aten.mul.Tensor](lower(self, node), 1.5)
        if ends:
            operators = "-".join(CHAINS[ends[0]])
            raise NotImplementedError(f"planted: cannot lower {operators}")
        return lower(self, node)

    run_node.planted = True  # type: ignore[attr-defined]
    return run_node


if not hasattr(GraphLowering.run_node, "planted"):
    GraphLowering.run_node = with_planted_chains(GraphLowering.run_node)  # type: ignore[method-assign]
