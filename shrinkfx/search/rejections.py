"""Known rejections, and the queries that they answer without a check."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from shrinkfx.failure.verdict import Outcome
from shrinkfx.program.candidate import Candidate, Outputs
from shrinkfx.program.edits import Drop, Edit


@dataclass
class Rejections:
    """Sets of operators that could not be dropped.

    This uses the monotonicity of delta debugging: a program that passes without some
    operators is assumed to pass without more of them. The assumption ends when one of
    these operators can be removed after all, because one accidental pass of half the
    program must not decide the rest of the search. Only PASSED counts: a bigger cut may
    repair one that is INVALID or fails DIFFERENTly.
    """

    _passed: list[tuple[Outputs, frozenset[str]]] = field(default_factory=list)

    def copy(self) -> Rejections:
        return Rejections(list(self._passed))

    def note(
        self, edits: Sequence[Edit], candidate: Candidate, outcome: Outcome
    ) -> None:
        """Record that ``edits``, which led to ``candidate``, were rejected."""
        nodes = dropped_operators(edits)
        if nodes and outcome is Outcome.PASSED:
            self._passed.append((candidate.outputs, nodes))

    def rule_out(self, edits: Sequence[Edit], candidate: Candidate) -> bool:
        """Tell whether the answer is known; always False for a single operator.

        Args:
            edits: all of them are still to be made, and make ``candidate``.
        """
        nodes = dropped_operators(edits)
        return len(nodes) > 1 and any(
            outputs is candidate.outputs and fewer <= nodes
            for outputs, fewer in self._passed
        )


def dropped_operators(edits: Sequence[Edit]) -> frozenset[str]:
    """Collect the operators that a bundle of drops removes; empty for other bundles."""
    nodes = [edit.nodes for edit in edits if isinstance(edit, Drop)]
    return frozenset().union(*nodes) if len(nodes) == len(edits) else frozenset()
