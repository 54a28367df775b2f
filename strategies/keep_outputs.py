"""Return fewer values: drop an output and all that served only it.

    x -> a -> out_1                     x -> a -> out_1
     \\-> b -> c -> out_2     becomes

The cheapest question about a program with several results, and the way a
program falls apart once its middle has been cut.
"""

from __future__ import annotations

from collections.abc import Iterator

from shrinkfx.program.edits import Drop
from shrinkfx.program.view import View

_SHARE = 16
"""A slice that is a smaller part of all operators is left to ``drop_nodes``."""


class KeepOutputs:
    """Propose to drop each returned value with the slice that only it needs.

    Big slices come first: one answer takes the most operators away. Those with a
    suspect come last.
    """

    name = "keep_outputs"
    combines = True

    def propose(self, view: View) -> Iterator[Drop]:
        if len(view.sinks) < 2:
            return
        least = len(view.operators) / _SHARE
        slices = sorted(view.slices(), key=len, reverse=True)
        for nodes in sorted(slices, key=view.suspicion):
            if len(nodes) >= least:
                yield Drop(nodes)
