"""Names that the capture needs, which shrinkfx wrote for the script's processes."""

from __future__ import annotations

import json
import operator
import os
from dataclasses import dataclass
from typing import Any

_FILE = "counts.json"


@dataclass(frozen=True)
class Counts:
    """Names of variables to record, and of operators to count.

    Attributes:
        variables: prefixes of environment variables that change what PyTorch does.
        secrets: words in the names of variables that must not be recorded.
        namespaces: namespaces of the operators that come with PyTorch.
        of_sizes: functions that read or compute sizes, by their ``__name__``.
        arithmetic: modules whose functions compute sizes, unless the result is a
            tensor.
    """

    variables: tuple[str, ...]
    secrets: tuple[str, ...]
    namespaces: frozenset[str]
    of_sizes: frozenset[str]
    arithmetic: frozenset[str]

    def is_operator(self, node: Any) -> bool:
        """Return whether shrinkfx counts a graph node as an operator."""
        if node.op != "call_function" or node.target is operator.getitem:
            return False
        if getattr(node.target, "__name__", "") in self.of_sizes:
            return False
        computes = getattr(node.target, "__module__", "") in self.arithmetic
        return not computes or hasattr(node.meta.get("val"), "dtype")

    def environment(self) -> dict[str, str]:
        """Return the current environment variables that may matter."""
        return {
            name: value
            for name, value in os.environ.items()
            if name.startswith(self.variables)
            and not any(word in name for word in self.secrets)
        }


def read(folder: str) -> Counts:
    """Read the names from the folder of a capture."""
    with open(os.path.join(folder, _FILE)) as file:
        record = json.load(file)
    return Counts(
        tuple(record["variables"]),
        tuple(record["secrets"]),
        frozenset(record["namespaces"]),
        frozenset(record["of_sizes"]),
        frozenset(record["arithmetic"]),
    )
