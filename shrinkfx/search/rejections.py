"""What was rejected so far, and which questions it answers beforehand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from shrinkfx.failure.verdict import Outcome
from shrinkfx.program.candidate import Candidate, Outputs
from shrinkfx.program.edits import Drop, Edit


@dataclass
class Rejections:
    """Sets of operators that could not be dropped.

    Delta debugging's monotony: where a program passes without some operators, it is
    believed to pass without more. Until one of them can go after all, since a chance
    pass of half the program must not decide the rest of the search. Only PASSED counts:
    a cut that is INVALID or fails DIFFERENTly may be mended by a bigger one.
    """

    _passed: list[tuple[Outputs, frozenset[str]]] = field(default_factory=list)

    def copy(self) -> Rejections:
        return Rejections(list(self._passed))

    def note(
        self, edits: Sequence[Edit], candidate: Candidate, outcome: Outcome
    ) -> None:
        """Remember that ``edits``, which led to ``candidate``, were rejected."""
        nodes = dropped(edits)
        if nodes and outcome is Outcome.PASSED:
            self._passed.append((candidate.outputs, nodes))

    def rule_out(self, edits: Sequence[Edit], candidate: Candidate) -> bool:
        """Tell whether the answer is known; never of one operator alone.

        Args:
            edits: all of them still to do, and ``candidate`` comes of them.
        """
        nodes = dropped(edits)
        return len(nodes) > 1 and any(
            outputs is candidate.outputs and fewer <= nodes
            for outputs, fewer in self._passed
        )


def dropped(edits: Sequence[Edit]) -> frozenset[str]:
    """Collect what a bundle of drops removes; nothing if it holds other edits."""
    nodes = [edit.nodes for edit in edits if isinstance(edit, Drop)]
    return frozenset().union(*nodes) if len(nodes) == len(edits) else frozenset()
