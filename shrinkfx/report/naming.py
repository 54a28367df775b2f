"""Names that a module may read from other modules, judged by its text.

from .scale import SCALE    reads SCALE of the module scale
from .scale import *        may read any name in the text from scale
scale.SCALE                 may read SCALE of any module
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field

from shrinkfx.report.layout import home_of


@dataclass(frozen=True)
class ReadNames:
    """Names that a text may read: from one module, by its name, and from any module."""

    by_module: Mapping[str, frozenset[str]] = field(default_factory=dict)
    anywhere: frozenset[str] = frozenset()

    def of(self, module: str) -> frozenset[str]:
        """Return the names that the text may read from ``module``."""
        return self.anywhere | self.by_module.get(module, frozenset())


def collect_read_names(text: str, package: str) -> ReadNames:
    """Collect the names that a text may read from other modules.

    Args:
        package: the package that relative imports start from.
    """
    imported: dict[str, set[str]] = {}
    anywhere, bare = set[str](), set[str]()
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.ImportFrom(names=aliases):
                names = imported.setdefault(home_of(node, package), set())
                names.update(alias.name for alias in aliases)
            case ast.Attribute(attr=word):
                anywhere.add(word)
            case ast.Name(id=word):
                bare.add(word)
            case ast.Constant(value=str(word)) if word.isidentifier():
                anywhere.add(word)  # for getattr
    return ReadNames(
        {m: frozenset(n | bare if "*" in n else n) for m, n in imported.items()},
        frozenset(anywhere),
    )
