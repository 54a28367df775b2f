"""Drop whole modules of the user's model: hierarchical delta debugging.

    blocks.0 -> blocks.1 -> head        becomes        blocks.0' -> blocks.1

A module is what a person would take out first, and mostly works without its
neighbours. Once one module is left, its own parts are next.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from shrinkfx.program.edits import Drop
from shrinkfx.program.view import View

_LEAST = 4
_SHARE = 16
"""Smaller modules, or a smaller part of all operators, are left to ``drop_nodes``."""


class ModuleCuts:
    """Propose each module inside the innermost one that holds all operators.

    Big ones come first, and of equal ones the last.
    """

    name = "module_cuts"
    combines = False

    def propose(self, view: View) -> Iterator[Drop]:
        paths = {n: view.skeleton.node(n).scope.split(".") for n in view.operators}
        shared = _shared(list(paths.values()))
        modules: dict[str, list[str]] = defaultdict(list)
        for name, path in paths.items():
            if len(path) > shared and path[shared]:
                modules[path[shared]].append(name)
        for nodes in sorted(reversed(list(modules.values())), key=len, reverse=True):
            if _LEAST <= len(nodes) < len(paths) <= len(nodes) * _SHARE:
                yield Drop(frozenset(nodes))


def _shared(paths: list[list[str]]) -> int:
    """Count the leading names that all paths have in common."""
    return next(
        (i for i, names in enumerate(zip(*paths, strict=False)) if len({*names}) > 1),
        min(map(len, paths)),
    )
