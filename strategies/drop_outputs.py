"""Return fewer values: drop an output and the operators that only serve it.

    x -> a -> out_1                     x -> a -> out_1
     \\-> b -> c -> out_2     becomes

For a program with several results these queries are the cheapest; and they split a
program whose middle has been cut.
"""

from __future__ import annotations

from collections.abc import Iterator

from shrinkfx.program.edits import Drop
from shrinkfx.program.view import View

_SHARE = 16
"""Slices below this fraction (1/16) of all operators are left to ``drop_nodes``."""


class DropOutputs:
    """Propose to drop each returned value with the operators that only it needs.

    Big slices come first, because one query removes the most operators. Slices with a
    suspect come last.
    """

    name = "drop_outputs"
    combines = True

    def propose(self, view: View) -> Iterator[Drop]:
        if len(view.sinks) < 2:
            return
        least = len(view.operators) / _SHARE
        slices = sorted(view.slices(), key=len, reverse=True)
        for nodes in sorted(slices, key=view.suspicion):
            if len(nodes) >= least:
                yield Drop(nodes)
