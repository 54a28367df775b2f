"""Remove single operators; what their users need is fed from outside.

    x -> a -> b -> c        becomes        x -> a,  b' -> c

``b'`` is a new input that holds the value ``b`` had in the original's eager
run. The reducer bundles these edits, so whole stretches go at once.
"""

from __future__ import annotations

from collections.abc import Iterator

from shrinkfx.program.edits import Drop
from shrinkfx.program.view import View


class DropNodes:
    """Propose to drop each operator alone, last first.

    Last first because what follows the culprit is only there to return it; but
    suspects after all others.
    """

    name = "drop_nodes"
    combines = True

    def propose(self, view: View) -> Iterator[Drop]:
        nodes = reversed(view.operators)
        for node in sorted(nodes, key=lambda n: view.suspicion([n])):
            yield Drop(frozenset({node}))
