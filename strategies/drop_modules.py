"""Drop whole modules of the user's model.

    blocks.0 -> blocks.1 -> head        becomes        blocks.0' -> blocks.1

A person would remove modules first, and most modules work without their neighbours.
Once one module is left, its own parts are next: coarse levels before fine ones, as in
hierarchical delta debugging (Misherghi and Su, "HDD: Hierarchical Delta Debugging",
ICSE 2006).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from shrinkfx.program.edits import Drop
from shrinkfx.program.view import View

_LEAST = 4
_SHARE = 16
"""Modules below ``_LEAST`` operators, or below this fraction (1/16) of all operators,
are
left to ``drop_nodes``."""


class DropModules:
    """Propose to drop modules below the innermost one that holds all operators.

    Of equal modules, such as the layers of a transformer, propose to drop all but one;
    then halves of them, for a failure that needs the values of a certain one. Big parts
    come first, and the last module before its equals. Modules with suspects stay.
    """

    name = "drop_modules"
    combines = False

    def propose(self, view: View) -> Iterator[Drop]:
        total = len(view.operators)
        for nodes in sorted(_parts(view), key=len, reverse=True):
            if view.suspicion(nodes):
                continue
            if _LEAST <= len(nodes) < total <= len(nodes) * _SHARE:
                yield Drop(frozenset(nodes))


def _parts(view: View) -> Iterator[list[str]]:
    """Yield single modules, last first, and groups of equal modules."""
    kinds: dict[tuple[str, ...], list[list[str]]] = defaultdict(list)
    for nodes in reversed(_modules(view)):
        kinds[tuple(view.skeleton.node(n).target for n in nodes)].append(nodes)
    for modules in kinds.values():
        middle = len(modules) // 2
        likeliest = max(modules, key=view.suspicion)
        for part in (
            [nodes for nodes in modules if nodes is not likeliest],
            *(modules[:middle], modules[middle:]),
        ):
            yield [name for nodes in part for name in nodes]


def _modules(view: View) -> list[list[str]]:
    """Group operators by the first name at which their module paths differ."""
    paths = {n: view.skeleton.node(n).scope.split(".") for n in view.operators}
    shared = _shared(list(paths.values()))
    modules: dict[str, list[str]] = defaultdict(list)
    for name, path in paths.items():
        if len(path) > shared and path[shared]:
            modules[path[shared]].append(name)
    return list(modules.values())


def _shared(paths: list[list[str]]) -> int:
    """Count the leading names that all paths share."""
    return next(
        (i for i, names in enumerate(zip(*paths, strict=False)) if len({*names}) > 1),
        min(map(len, paths)),
    )
