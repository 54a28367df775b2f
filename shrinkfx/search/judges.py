"""Dear questions, put about the result of a search and about each step after it.

A search asks what is cheap. What in the end must hold is asked about its result alone:
whether that fails without guard pages, and whether its repro does. Where the answer is
no, the search goes back to a step that the judge confirms, and on from there; from then
on each step has to be confirmed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from shrinkfx.failure.verdict import Verdict
from shrinkfx.journal.journal import Journal
from shrinkfx.program.candidate import Candidate


@dataclass(frozen=True)
class Judge:
    """Confirms what fails, or does not; each candidate is looked at once.

    Attributes:
        name: what the journal calls it.
        form, build: of the candidates, for the journal.
        check: REPRODUCED confirms.
        refusal: what is said of a candidate that is not confirmed.
    """

    name: str
    form: str
    build: str
    check: Callable[[Candidate], Verdict]
    refusal: str
    journal: Journal
    _answers: dict[str, bool] = field(default_factory=dict)

    def confirms(self, candidate: Candidate) -> bool:
        known = self._answers.get(candidate.digest)
        if known is None:
            # What was killed has refused nothing: the candidate is not to blame.
            about = candidate, self.form, self.build
            verdict = self.journal.recall(*about, again=True)
            if verdict is None:
                asked = self.name, self.form, candidate, self.build
                verdict = self.journal.ask(*asked, self.check)
            known = self._answers[candidate.digest] = verdict.reproduced
        return known


def steps_back(history: Sequence[Candidate]) -> list[Candidate]:
    """Choose which steps to ask about when the last one is not confirmed.

    The last one, those one, two, four and so on before it, and the first. Each
    question costs, and what is between two of them the search finds again.
    """
    last = len(history) - 1
    back = {0, last, *(1 << n for n in range(last.bit_length()))}
    return [history[last - n] for n in sorted(back)]
