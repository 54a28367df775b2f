"""Adaptive group testing: make all changes to a printed program, then halves.

Most changes can be made, and few places are needed. So the first group holds all
changes (Hwang, "A Method for Detecting All Defective Members in a Population by Group
Testing", JASA 67(339), 1972). The search halves a rejected group until one change is
rejected alone; the changes that it did not test meanwhile are the next group.

    of 30 changes, needed              0     1     2     3     5
    queries, bundles by probability    1    11    18    22    32
    queries, halves                    1     7    13    19    30

These are medians of 40 random choices, each brought to the fixed point; the bundles,
too, began with all changes at once. ``tests/search/test_halved.py`` holds bounds.
Groups sized by the density of rejections so far save two queries of 30 if five are
needed, none if three are, and cost one if one is; a density that is known beforehand
saves one if three are. The remaining queries test each rejected change alone.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Sequence

from shrinkfx.program.apply import remaining_edit
from shrinkfx.program.candidate import Candidate
from shrinkfx.program.edits import Edit
from shrinkfx.search.odds import EditProbabilities


class GroupTesting:
    """Rewrites that are tried in halves, until each was rejected alone.

    Args:
        refused: rewrites that were rejected alone in an earlier round; they come last,
            each alone.
    """

    def __init__(
        self, edits: Sequence[Edit], refused: Collection[Edit] = frozenset()
    ) -> None:
        edits = list(dict.fromkeys(edits))
        self._open = [edit for edit in edits if edit not in refused]
        self._last = [edit for edit in edits if edit in refused]
        self._culprits: list[Edit] = []  # at least one of these cannot be made

    def next(self) -> Sequence[Edit]:
        if not self._culprits:
            return self._open or self._last[:1]
        return self._culprits[: max(1, len(self._culprits) // 2)]

    def record_accepted(self, edits: Sequence[Edit], reduced: Candidate) -> None:
        self._open = _left(self._open, reduced)
        self._culprits = _left(self._culprits, reduced)
        self._last = _left(self._last, reduced)

    def record_rejected(self, edits: Sequence[Edit]) -> None:
        rest = [edit for edit in self._culprits + self._open if edit not in edits]
        # A rewrite that was rejected alone is not tried again in this round.
        self._culprits = list(edits) if len(edits) > 1 else []
        self._open = rest
        self._last = [edit for edit in self._last if edit not in edits]

    def copy(self, probabilities: EditProbabilities) -> GroupTesting:
        return copy.copy(self)


def _left(edits: Sequence[Edit], reduced: Candidate) -> list[Edit]:
    remaining = (remaining_edit(edit, reduced) for edit in edits)
    return list(dict.fromkeys(edit for edit in remaining if edit is not None))
