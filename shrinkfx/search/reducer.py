"""The main loop: take edits from strategies, have them answered, keep what fails.

Delta debugging (Zeller and Hildebrandt, "Simplifying and Isolating Failure-Inducing
Input", IEEE TSE 28(2), 2002), whose deltas are the edits that strategies propose. What
is asked about next is up to ``course``, and what an answer is and costs to ``asker``.

What a search that came to its end has found is 1-minimal in their sense for dropping
operators: without any one of those that can be dropped it fails no more, unless there
was no answer. ``minimal`` tells; it says nothing of the other edits.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence

from shrinkfx.errors import InvalidEdit
from shrinkfx.events import Asking, Checked, Listener, Stepped, ignore
from shrinkfx.failure.signature import Signature
from shrinkfx.failure.verdict import Outcome, Verdict
from shrinkfx.program.apply import apply
from shrinkfx.program.candidate import Candidate
from shrinkfx.program.edits import Drop
from shrinkfx.program.listing.types import Kind
from shrinkfx.program.view import NOBODY
from shrinkfx.search.asker import Asker
from shrinkfx.search.course import Course, Question
from shrinkfx.search.fitting import Fitter, Unfitted, single_steps
from shrinkfx.search.strategy import Rewriter, Strategy

logger = logging.getLogger(__name__)


class Reducer:
    """Shrink ``best`` while the answer is REPRODUCED.

    Invariants: ``best`` has always reproduced the failure; ``best.cost`` only falls.

    Attributes:
        best: the smallest candidate so far.
        history: every accepted candidate, the starting one first.
        asker: answers its questions.
    """

    def __init__(
        self,
        best: Candidate,
        asker: Asker,
        strategies: Sequence[Strategy],
        *,
        suspects: Mapping[str, float] = NOBODY,
        listener: Listener = ignore,
        fitter: Fitter = Unfitted(),  # noqa: B008 - it holds nothing
    ) -> None:
        self.asker = asker
        self._fitter = fitter
        self._strategies = strategies
        self._suspects = suspects
        self._listener = listener
        self.restart(best)

    def restart(self, best: Candidate) -> None:
        """Go on from another candidate that is known to fail; keep all answers."""
        self.best = best
        self.history = [best]
        self._answers_at_step = self.asker.asked_about
        self._course = Course(best, self._strategies, self._suspects, self._fitter)
        self._steps = self._steps_down()

    def run(self, pause: Callable[[Candidate], bool] | None = None) -> Candidate:
        """Apply every strategy to a fixed point.

        Args:
            pause: return as soon as the best candidate satisfies this; a second
                call goes on with the very next question.

        Raises:
            BudgetExhausted: ``best`` holds what was reached.
        """
        with self.asker.following(self._course):
            while not (pause and pause(self.best)):
                if next(self._steps, None) is None:
                    break
        return self.best

    def _steps_down(self) -> Iterator[Candidate]:
        """Yield each accepted candidate until no strategy finds another."""
        while question := self._course.question():
            asked = question.strategy, question.candidate
            verdict = self.ask(*asked, shown=self._to_be_kept(question))
            if self._course.answer(verdict.outcome):
                self._step(question.strategy, question.candidate)
                yield self.best

    def _to_be_kept(self, question: Question) -> Signature | None:
        """Find the failure in which the same must differ, or None.

        While operators go, wrong values become a wrong shape and the other way round:
        which of them shows hangs on what is left. What leaves as many operators keeps
        what differs, or it shows something else that these are wrong about.
        """
        if not question.edits or question.candidate.cost[0] < self.best.cost[0]:
            return None
        return self.asker.shown_by(self.best)

    def ask(
        self,
        strategy: str,
        candidate: Candidate,
        *,
        judged: bool = True,
        shown: Signature | None = None,
    ) -> Verdict:
        """Have the asker answer, and tell of it if it was not known.

        Args:
            judged, shown: those of ``Asker.ask``.

        Raises:
            BudgetExhausted: it is not known and may not be asked.
        """
        before = self.asker.asked_about
        if self.asker.known(candidate) is None:
            self._listener(Asking(strategy, candidate.cost[0]))
        verdict = self.asker.ask(strategy, candidate, judged=judged, shown=shown)
        if self.asker.asked_about > before:
            self._tell(strategy, candidate, verdict)
        return verdict

    def _tell(self, strategy: str, candidate: Candidate, verdict: Verdict) -> None:
        budget = self.asker.budget
        expected_s = None  # of a listing: nobody knows what strategies will find in it
        if candidate.listing is None:
            expected_s = budget.time_for(self._questions_left(candidate, verdict))
        self._listener(
            Checked(
                budget.checks,
                verdict.outcome,
                self.best.cost[0],
                budget.seconds,
                budget.seconds_left,
                strategy,
                candidate.cost[0],
                str(verdict.observation.signature or ""),
                expected_s,
            )
        )

    def _questions_left(self, candidate: Candidate, verdict: Verdict) -> float:
        """Estimate how many questions the search still has after this one."""
        if verdict.reproduced:  # it goes on from there
            return max(1.0, self._course.odds.outlook(candidate.operators))
        since = self.asker.asked_about - self._answers_at_step
        return max(1.0, self._course.odds.outlook(self.best.operators) - since)

    def _step(self, strategy: str, candidate: Candidate) -> None:
        before, after = self.best.cost[0], candidate.cost[0]
        nbytes = _bytes_of(self.best), _bytes_of(candidate)
        self.best = candidate
        self.history.append(candidate)
        self._answers_at_step = self.asker.asked_about
        check, seconds = self.asker.budget.checks, self.asker.budget.seconds
        logger.info(
            "%d -> %d operators  %s  check %d  %.0f s",
            *(before, after, strategy, check, seconds),
        )
        held = None if candidate.listing is None else nbytes
        self._listener(Stepped(before, after, strategy, check, seconds, held))

    @property
    def minimal(self) -> bool:
        """Tell whether the best candidate is 1-minimal for dropping operators.

        Dropping any one was answered, and never by REPRODUCED or UNRESOLVED. Nobody
        drops operators of a listing: that is up to the search that came before it.
        """
        for node in self.best.operators:
            try:
                smaller = apply(self.best, [Drop(frozenset({node}))])
            except InvalidEdit:
                continue
            if not self._is_refused(smaller):
                return False
        return True

    @property
    def minimal_kinds(self) -> dict[Kind, bool]:
        """Tell of each kind of change to a listing whether no single one can be made.

        Each that makes a valid program, and a smaller one, was answered as in
        ``minimal``.
        """
        found: dict[Kind, bool] = {}
        for strategy in self._strategies:
            if isinstance(strategy, Rewriter) and self.best.listing is not None:
                steps = single_steps(self.best, strategy, self._fitter)
                kind = Kind(strategy.kind)
                found[kind] = found.get(kind, True) and all(
                    map(self._is_refused, steps)
                )
        return found

    def _is_refused(self, candidate: Candidate) -> bool:
        final = {Outcome.PASSED, Outcome.DIFFERENT, Outcome.INVALID}
        verdict = self.asker.known(candidate)
        return verdict is not None and verdict.outcome in final


def _bytes_of(candidate: Candidate) -> int:
    """Count the bytes that a listing is given."""
    return candidate.listing.nbytes if candidate.listing else 0
