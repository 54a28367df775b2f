"""A fake oracle, which answers queries from a function."""

from __future__ import annotations

from collections.abc import Callable

from shrinkfx.failure.signature import Kind, Signature, Stage
from shrinkfx.failure.verdict import Observation, Outcome, Verdict
from shrinkfx.program.candidate import Candidate

PLANTED = Signature(Kind.ASSERT, Stage.RUN, "planted")
"""The failure that ``FakeOracle`` reports with REPRODUCED."""

OTHER = Signature(Kind.ASSERT, Stage.RUN, "another one")
"""The failure that ``FakeOracle`` reports with DIFFERENT."""

Answer = Callable[[Candidate], bool | Outcome]
"""Returns whether a candidate fails, or an ``Outcome`` for other verdicts."""


def needs(*operators: str) -> Callable[[Candidate], bool]:
    """Return an answer that fails while all operators of these names are unchanged."""
    return lambda candidate: candidate.keep - {*candidate.replace} >= {*operators}


def calls(target: str) -> Callable[[Candidate], bool]:
    """Return an answer that fails while an operator with this target is kept."""
    return lambda candidate: target in map(candidate.target, candidate.keep)


class FakeOracle:
    """An oracle that answers queries from a function, and records them.

    A second query with the same digest raises ``AssertionError``, because a search must
    not repeat a query.

    Attributes:
        asked: the candidates of all queries, in order.
    """

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self.asked: list[Candidate] = []

    def check(self, candidate: Candidate) -> Verdict:
        assert candidate.digest not in self.digests, f"asked twice: {candidate}"
        self.asked.append(candidate)
        answer = self._answer(candidate)
        if isinstance(answer, bool):
            answer = Outcome.REPRODUCED if answer else Outcome.PASSED
        return Verdict(answer, _OBSERVATIONS[answer])

    @property
    def digests(self) -> list[str]:
        """The digests of all queries, in order, for comparisons."""
        return [candidate.digest for candidate in self.asked]


_OBSERVATIONS = {
    Outcome.REPRODUCED: Observation(PLANTED),
    Outcome.DIFFERENT: Observation(OTHER),
    Outcome.PASSED: Observation(),
    Outcome.UNRESOLVED: Observation(unresolved="no answer in time"),
    Outcome.INVALID: Observation(invalid="eager refuses it"),
}
