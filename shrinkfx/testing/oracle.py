"""An oracle that answers from a function."""

from __future__ import annotations

from collections.abc import Callable

from shrinkfx.failure.signature import Kind, Signature, Stage
from shrinkfx.failure.verdict import Observation, Outcome, Verdict
from shrinkfx.program.candidate import Candidate

PLANTED = Signature(Kind.ASSERT, Stage.RUN, "planted")
"""The failure that a ``FakeOracle`` looks for."""

OTHER = Signature(Kind.ASSERT, Stage.RUN, "another one")
"""The failure that it answers DIFFERENT with."""

Answer = Callable[[Candidate], bool | Outcome]
"""Tells whether a candidate fails; an ``Outcome`` where yes and no are too few."""


def needs(*operators: str) -> Callable[[Candidate], bool]:
    """Fail as long as all these operators are kept as they are, by name."""
    return lambda candidate: candidate.keep - {*candidate.replace} >= {*operators}


def calls(target: str) -> Callable[[Candidate], bool]:
    """Fail as long as an operator with this target is kept."""
    return lambda candidate: target in map(candidate.target, candidate.keep)


class FakeOracle:
    """Answer from a function, and remember the questions.

    A reducer that asks twice about one digest gets an ``AssertionError``.

    Attributes:
        asked: every candidate it was asked about, in order.
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
        return Verdict(answer, _SEEN[answer])

    @property
    def digests(self) -> list[str]:
        """List the questions in a form that compares well."""
        return [candidate.digest for candidate in self.asked]


_SEEN = {
    Outcome.REPRODUCED: Observation(PLANTED),
    Outcome.DIFFERENT: Observation(OTHER),
    Outcome.PASSED: Observation(),
    Outcome.UNRESOLVED: Observation(unresolved="no answer in time"),
    Outcome.INVALID: Observation(invalid="eager refuses it"),
}
