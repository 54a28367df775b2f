"""All changes to a listing at once, then halves of what could not be made.

Most can be made, and what is needed is few: adaptive group testing (Hwang, "A Method
for Detecting All Defective Members in a Population by Group Testing", JASA 67(339),
1972), with all in the first group. Halves of what was rejected are asked about until
one change is rejected alone; what was not looked at meanwhile is the next group.

    of 30 changes, needed              0     1     2     3     5
    questions, bundles by odds         1    11    18    22    32
    questions, halves                  1     7    13    19    30

These are medians of 40 random choices, each brought to the fixed point; with the odds
all were tried at once first, too. ``tests/search/test_halved.py`` holds bounds. Groups
as large as the density of what was found by then suggests save two questions of 30
where five are needed, none where three are, and cost one where one is; a density that
is known beforehand saves one where three are. The rest is that each is asked about
alone.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Sequence

from shrinkfx.program.apply import left_of
from shrinkfx.program.candidate import Candidate
from shrinkfx.program.edits import Edit
from shrinkfx.search.odds import Odds


class Halved:
    """The rewrites that can be made, in halves, until each was rejected alone.

    Args:
        refused: what was rejected alone in an earlier round: last, and alone again.
    """

    def __init__(
        self, edits: Sequence[Edit], refused: Collection[Edit] = frozenset()
    ) -> None:
        edits = list(dict.fromkeys(edits))
        self._open = [edit for edit in edits if edit not in refused]
        self._last = [edit for edit in edits if edit in refused]
        self._guilty: list[Edit] = []  # one of these, at least, cannot be made

    def next(self) -> Sequence[Edit]:
        if not self._guilty:
            return self._open or self._last[:1]
        return self._guilty[: max(1, len(self._guilty) // 2)]

    def accepted(self, edits: Sequence[Edit], best: Candidate) -> None:
        self._open = _left(self._open, best)
        self._guilty = _left(self._guilty, best)
        self._last = _left(self._last, best)

    def rejected(self, edits: Sequence[Edit]) -> None:
        rest = [edit for edit in self._guilty + self._open if edit not in edits]
        # Alone it is not asked about again before another round.
        self._guilty = list(edits) if len(edits) > 1 else []
        self._open = rest
        self._last = [edit for edit in self._last if edit not in edits]

    def copy(self, odds: Odds) -> Halved:
        return copy.copy(self)


def _left(edits: Sequence[Edit], best: Candidate) -> list[Edit]:
    left = (left_of(edit, best) for edit in edits)
    return list(dict.fromkeys(edit for edit in left if edit is not None))
