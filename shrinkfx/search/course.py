"""The course of a search: where it stands, and so what is asked next, as a value.

Nothing here asks. A course says what its next question is, and is told the answer; the
same answers lead to the same questions. So a copy of it that is told an answer which
nobody has given yet says what would be asked then.

    course.question()    what is asked next
    course.answer(...)   go on from there
    course.copy()        what if?
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Protocol, Self

from shrinkfx.errors import InvalidEdit
from shrinkfx.failure.verdict import Outcome
from shrinkfx.program.apply import apply, left_of
from shrinkfx.program.candidate import Candidate, Outputs
from shrinkfx.program.edits import Edit
from shrinkfx.program.view import NOBODY
from shrinkfx.search.bundles import Bundles
from shrinkfx.search.fitting import (
    Fitter,
    Unfitted,
    fitted_together,
    fitting_proposals,
)
from shrinkfx.search.halved import Halved
from shrinkfx.search.odds import Odds
from shrinkfx.search.rejections import Rejections
from shrinkfx.search.strategy import Strategy, fitting_for

_SHOWS = 0.75
"""The probability that a program shows the failure if all is there that it needs."""

_LEAST_OF_BUNDLES, _LEAST_OF_ALTERNATIVES = 0.15, 0.3
"""The least probability that an edit is accepted, of each kind of strategy."""

_EVEN, _AGAIN = 0.5, 0.1
"""The probability that rewrites of a listing are accepted: halves are made so that
either answer is as likely. And where each was rejected alone in an earlier round.

Only what is asked ahead goes by these five (``benchmarks/foreseeing.py``)."""


@dataclass(frozen=True)
class Question:
    """What is asked next.

    Attributes:
        strategy: who wants to know.
        edits: what led to the candidate from the best one; none where it is not to
            take the place of that.
    """

    strategy: str
    candidate: Candidate
    edits: Sequence[Edit] = ()


class _Turn(Protocol):
    """A strategy's edits, gone through once."""

    def next(self) -> Sequence[Edit]:
        """Choose the edits that are tried next; none at the end."""
        ...

    def accepted(self, edits: Sequence[Edit], best: Candidate) -> None: ...

    def rejected(self, edits: Sequence[Edit]) -> None: ...

    def copy(self, odds: Odds) -> Self:
        """Copy it, to go by other odds."""
        ...


class _Alternatives:
    """One edit after the other."""

    def __init__(self, edits: Sequence[Edit]) -> None:
        self._edits, self._tried = edits, 0

    def next(self) -> Sequence[Edit]:
        return self._edits[self._tried : self._tried + 1]

    def accepted(self, edits: Sequence[Edit], best: Candidate) -> None:
        # What a step has done in part does not fit any more. And what would have made
        # a size of a listing smaller may make it bigger now.
        self._tried = self._tried + 1 if best.listing is None else len(self._edits)

    def rejected(self, edits: Sequence[Edit]) -> None:
        self._tried += 1

    def copy(self, odds: Odds) -> Self:
        return copy.copy(self)


class _Combined:
    """The edits that can be made, in bundles, until each was rejected alone.

    Not to a fixed point: another strategy may free what this one could not, and every
    step makes the questions after it new.
    """

    def __init__(self, edits: Sequence[Edit], odds: Odds) -> None:
        self._bundles = Bundles(list(dict.fromkeys(edits)), odds)

    def next(self) -> Sequence[Edit]:
        return self._bundles.next()

    def accepted(self, edits: Sequence[Edit], best: Candidate) -> None:
        self._bundles.accepted(
            edits, lambda items: [e for item in items if (e := left_of(item, best))]
        )

    def rejected(self, edits: Sequence[Edit]) -> None:
        self._bundles.rejected(edits)

    def copy(self, odds: Odds) -> Self:
        twin = copy.copy(self)
        twin._bundles = self._bundles.copy(odds)
        return twin


class Course:
    """All strategies in turn, by either way to return values, to a fixed point.

    Attributes:
        best: the smallest candidate so far that fails; its cost only falls.
        odds: how likely it is that each operator is needed.
    """

    def __init__(
        self,
        best: Candidate,
        strategies: Sequence[Strategy],
        suspects: Mapping[str, float] = NOBODY,
        fitter: Fitter = Unfitted(),  # noqa: B008 - it holds nothing
    ) -> None:
        self.best = best
        self.odds = Odds(suspects, best.cost[0])
        self._strategies = fitting_for(best, strategies)
        self._suspects, self._fitter = suspects, fitter
        self._rejections = Rejections()
        self._refused: frozenset[Edit] = frozenset()  # alone, in any round
        self._question: Question | None = None
        self._before = best.cost  # when this round of all strategies began
        self._round: Sequence[tuple[Outputs, Strategy]] | None = None
        self._place = 0  # in the round
        self._turn: _Turn | None = None
        self._start = best  # of the turn

    def copy(self) -> Course:
        """Copy all that changes; candidates and edits do not."""
        twin = copy.copy(self)
        twin.odds = self.odds.copy()
        twin._rejections = self._rejections.copy()
        twin._turn = self._turn and self._turn.copy(twin.odds)
        return twin

    def foreseen(self) -> Course:
        """Copy it, to be told answers that nobody has given."""
        twin = self.copy()
        twin._fitter = self._fitter.ahead()
        return twin

    # --- questions and answers

    def question(self) -> Question | None:
        """Find what is asked next; None when no strategy finds another step.

        Raises:
            StrategyError: a strategy raised, or broke a law.
        """
        if self._round is None and self._question is None:
            self._question = self._about_outputs()
        while self._question is None and (turn := self._turn_at_hand()):
            if edits := turn.next():
                self._question = self._about(edits)
                if self._question is None:
                    turn.rejected(edits)
            else:
                self._pass_on()
        return self._question

    def answer(self, outcome: Outcome) -> bool:
        """Go on by the answer to the question; tell whether it is a step."""
        question, self._question = self._question, None
        assert question is not None
        accepted = outcome is Outcome.REPRODUCED
        if self._round is None:
            self._begin(Outputs.SINKS if accepted else Outputs.ORIGINAL)
            return False
        assert self._turn is not None
        if accepted:
            self.best = question.candidate
            self._turn.accepted(question.edits, self.best)
        else:
            self._rejections.note(question.edits, question.candidate, outcome)
            self._turn.rejected(question.edits)
            if len(question.edits) == 1:
                self._refused |= {*question.edits}
        return accepted

    def chance(self) -> float:
        """Tell how likely it is that the question is answered by REPRODUCED.

        That what an edit takes away is not needed is not enough: what is left may
        hide the failure. And the odds think of operators as needed independently of
        each other. What is needed is mostly in one place, so big parts of a program
        can go more often.
        """
        question = self.question()
        assert question is not None
        if not question.edits:
            return _SHOWS
        if self.best.listing is not None:
            return _AGAIN if self._refused.issuperset(question.edits) else _EVEN
        combines = isinstance(self._turn, _Combined)
        least = _LEAST_OF_BUNDLES if combines else _LEAST_OF_ALTERNATIVES
        return max(least, _SHOWS * self.odds.chance(question.edits))

    def _about_outputs(self) -> Question | None:
        """Ask whether fewer values may be returned, unless that is so already.

        What is returned cannot be fused away, and what is not returned can.
        """
        fewer = self.best.returning(Outputs.SINKS)
        if fewer.digest == self.best.digest:
            self._begin(Outputs.SINKS)
            return None
        return Question("outputs", fewer)

    def _about(self, edits: Sequence[Edit]) -> Question | None:
        """Ask about ``edits`` to the best candidate, if that is worth a question."""
        assert self._round is not None
        policy, strategy = self._round[self._place]
        made = edits
        if self.best.listing is not None:
            edits, whole = fitted_together(self.best, edits, self._fitter)
            made = [whole] if whole else []
        try:
            candidate = apply(self.best, made).returning(policy)
        except InvalidEdit:
            return None
        if candidate.cost >= self.best.cost:
            return None
        if self._rejections.rule_out(edits, candidate):
            return None
        return Question(strategy.name, candidate, edits)

    # --- whose turn it is

    def _begin(self, first: Outputs) -> None:
        """Return values in this way first, and then in the other."""
        policies = sorted(Outputs, key=lambda policy: policy is not first)
        if self.best.listing is not None:
            policies = [first]  # it says itself what it returns
        self._round = list(product(policies, self._strategies))

    def _turn_at_hand(self) -> _Turn | None:
        """Have the next strategy propose, if none has; None if all is over."""
        assert self._round is not None
        if self._turn is not None:
            return self._turn
        if self._place == len(self._round):
            if self.best.cost == self._before:
                return None
            self._place, self._before = 0, self.best.cost
        _, strategy = self._round[self._place]
        asked = strategy, self.best, self._fitter, self._suspects
        edits = fitting_proposals(*asked)
        self._start = self.best
        if self.best.listing is not None:  # what was rejected alone comes last
            edits.sort(key=self._refused.__contains__)
        if strategy.combines and self.best.listing is not None:
            self._turn = Halved(edits, self._refused)
        elif strategy.combines:
            self.odds.begin(self.best.cost[0])
            self._turn = _Combined(edits, self.odds)
        else:
            self._turn = _Alternatives(edits)
        return self._turn

    def _pass_on(self) -> None:
        """End a turn; alternatives are proposed anew where one of them was a step."""
        assert self._round is not None
        _, strategy = self._round[self._place]
        self._turn = None
        if strategy.combines or self._start is self.best:
            self._place += 1
