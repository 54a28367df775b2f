"""Remove single operators; their users get inputs instead.

    x -> a -> b -> c        becomes        x -> a,  b' -> c

``b'`` is a new input with the value that ``b`` had in the input program's eager run.
The reducer bundles these edits, so it removes many operators at once.
"""

from __future__ import annotations

from collections.abc import Iterator

from shrinkfx.program.edits import Drop
from shrinkfx.program.view import View


class DropNodes:
    """Propose to drop each operator alone, last first.

    Last operators come first, because those after the culprit only return its result.
    Suspects come after all others.
    """

    name = "drop_nodes"
    combines = True

    def propose(self, view: View) -> Iterator[Drop]:
        nodes = reversed(view.operators)
        for node in sorted(nodes, key=lambda n: view.suspicion([n])):
            yield Drop(frozenset({node}))
