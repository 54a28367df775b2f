"""Which names count: what shrinkfx has written down for the script's processes."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass

_FILE = "counts.json"


@dataclass(frozen=True)
class Counts:
    """What to write down, and what not.

    Attributes:
        variables: how those begin by which PyTorch does something else.
        secrets: what is in the names of those that nobody may write down.
        namespaces: of operators that come with PyTorch.
    """

    variables: tuple[str, ...]
    secrets: tuple[str, ...]
    namespaces: frozenset[str]

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
    )
