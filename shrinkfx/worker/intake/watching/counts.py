"""Which names count: what shrinkfx has written down for the script's processes."""

from __future__ import annotations

import json
import operator
import os
from dataclasses import dataclass
from typing import Any

_FILE = "counts.json"


@dataclass(frozen=True)
class Counts:
    """What to write down, and what not.

    Attributes:
        variables: how those begin by which PyTorch does something else.
        secrets: what is in the names of those that nobody may write down.
        namespaces: of operators that come with PyTorch.
        of_sizes: what reads sizes or computes with them, by its ``__name__``.
        arithmetic: modules whose functions do, unless they make a tensor.
    """

    variables: tuple[str, ...]
    secrets: tuple[str, ...]
    namespaces: frozenset[str]
    of_sizes: frozenset[str]
    arithmetic: frozenset[str]

    def is_operator(self, node: Any) -> bool:
        """Tell whether a node of a graph is one that shrinkfx counts."""
        if node.op != "call_function" or node.target is operator.getitem:
            return False
        if getattr(node.target, "__name__", "") in self.of_sizes:
            return False
        computes = getattr(node.target, "__module__", "") in self.arithmetic
        return not computes or hasattr(node.meta.get("val"), "dtype")

    def environment(self) -> dict[str, str]:
        """Pick the variables that may matter, as they are now."""
        return {
            name: value
            for name, value in os.environ.items()
            if name.startswith(self.variables)
            and not any(word in name for word in self.secrets)
        }


def read(folder: str) -> Counts:
    """Read what counts."""
    with open(os.path.join(folder, _FILE)) as file:
        told = json.load(file)
    return Counts(
        tuple(told["variables"]),
        tuple(told["secrets"]),
        frozenset(told["namespaces"]),
        frozenset(told["of_sizes"]),
        frozenset(told["arithmetic"]),
    )
