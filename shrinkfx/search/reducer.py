"""The main loop of a search: query candidates, and keep the smallest that fails.

This is delta debugging (Zeller and Hildebrandt, "Simplifying and Isolating
Failure-Inducing Input", IEEE TSE 28(2), 2002); the deltas are the edits that strategies
propose. ``search_state`` decides the next query, and ``asker`` answers it and counts
its cost.

The result of a complete search is 1-minimal for dropping operators: without any single
operator that can be dropped it does not fail, unless that query had no answer.
``minimal`` tells; it says nothing about other edits.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence

from shrinkfx.errors import InvalidEdit
from shrinkfx.events import (
    Listener,
    QueryAnswered,
    QueryStarted,
    StepTaken,
    ignore_event,
)
from shrinkfx.failure.signature import Signature
from shrinkfx.failure.verdict import Outcome, Verdict
from shrinkfx.program.apply import apply
from shrinkfx.program.candidate import Candidate
from shrinkfx.program.edits import Drop
from shrinkfx.program.listing.printed_program import Kind
from shrinkfx.program.view import NO_SUSPECTS
from shrinkfx.search.asker import Asker
from shrinkfx.search.fitting import Fitter, Unfitted, single_steps
from shrinkfx.search.search_state import Query, SearchState
from shrinkfx.search.strategy import Rewriter, Strategy

logger = logging.getLogger(__name__)


class Reducer:
    """Shrink ``best`` while the answer is REPRODUCED.

    Invariants: ``best`` has always reproduced the failure; ``best.cost`` only falls.

    Attributes:
        best: the reduced program so far.
        history: every accepted candidate, beginning with the starting one.
        asker: answers the queries.
    """

    def __init__(
        self,
        start: Candidate,
        asker: Asker,
        strategies: Sequence[Strategy],
        *,
        suspects: Mapping[str, float] = NO_SUSPECTS,
        listener: Listener = ignore_event,
        fitter: Fitter = Unfitted(),  # noqa: B008 - it holds nothing
    ) -> None:
        self.asker = asker
        self._fitter = fitter
        self._strategies = strategies
        self._suspects = suspects
        self._listener = listener
        self.restart(start)

    def restart(self, start: Candidate) -> None:
        """Continue from another candidate that is known to fail; keep all answers."""
        self.best = start
        self.history = [start]
        self._answers_at_step = self.asker.query_count
        self._state = SearchState(start, self._strategies, self._suspects, self._fitter)
        self._steps = self._run_steps()

    def run(self, pause: Callable[[Candidate], bool] | None = None) -> Candidate:
        """Apply every strategy to a fixed point, and return the reduced program.

        Args:
            pause: return as soon as the reduced program satisfies this; a second call
                continues with the very next query.

        Raises:
            BudgetExhausted: ``best`` holds the reduced program so far.
        """
        with self.asker.speculate_for(self._state):
            while not (pause and pause(self.best)):
                if next(self._steps, None) is None:
                    break
        return self.best

    def _run_steps(self) -> Iterator[Candidate]:
        """Yield each accepted candidate until no strategy finds another."""
        while question := self._state.next_query():
            request = question.strategy, question.candidate
            verdict = self.ask(*request, shown=self._find_signature_to_keep(question))
            if self._state.answer(verdict.outcome):
                self._step(question.strategy, question.candidate)
                yield self.best

    def _find_signature_to_keep(self, question: Query) -> Signature | None:
        """Return the failure whose difference from eager must stay the same, or None.

        While operators are removed, wrong values may become a wrong shape and vice
        versa, depending on the remaining operators. An edit that keeps the number of
        operators must keep the difference, because otherwise it shows that these
        operators are wrong about something else.
        """
        if not question.edits or question.candidate.cost[0] < self.best.cost[0]:
            return None
        return self.asker.find_signature(self.best)

    def ask(
        self,
        strategy: str,
        candidate: Candidate,
        *,
        judged: bool = True,
        shown: Signature | None = None,
    ) -> Verdict:
        """Query a candidate through the cache, and notify the listener of a new check.

        Args:
            judged, shown: as for ``Asker.ask``.

        Raises:
            BudgetExhausted: the verdict is unknown, and the budget allows no check.
        """
        before = self.asker.query_count
        if self.asker.find_verdict(candidate) is None:
            self._listener(QueryStarted(strategy, candidate.cost[0]))
        verdict = self.asker.ask(strategy, candidate, judged=judged, shown=shown)
        if self.asker.query_count > before:
            self._notify_checked(strategy, candidate, verdict)
        return verdict

    def _notify_checked(
        self, strategy: str, candidate: Candidate, verdict: Verdict
    ) -> None:
        budget = self.asker.budget
        expected_s = None  # unknown for a printed program
        if candidate.listing is None:
            expected_s = budget.time_for(self._questions_left(candidate, verdict))
        self._listener(
            QueryAnswered(
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
        """Estimate how many queries the search still makes after this one."""
        if verdict.reproduced:  # the search continues from this candidate
            return max(
                1.0, self._state.probabilities.estimate_queries(candidate.operators)
            )
        since = self.asker.query_count - self._answers_at_step
        return max(
            1.0, self._state.probabilities.estimate_queries(self.best.operators) - since
        )

    def _step(self, strategy: str, candidate: Candidate) -> None:
        before, after = self.best.cost[0], candidate.cost[0]
        nbytes = _bytes_of(self.best), _bytes_of(candidate)
        self.best = candidate
        self.history.append(candidate)
        self._answers_at_step = self.asker.query_count
        check, seconds = self.asker.budget.checks, self.asker.budget.seconds
        logger.info(
            "%d -> %d operators  %s  check %d  %.0f s",
            *(before, after, strategy, check, seconds),
        )
        sizes = None if candidate.listing is None else nbytes
        self._listener(StepTaken(before, after, strategy, check, seconds, sizes))

    @property
    def minimal(self) -> bool:
        """Whether the reduced program is 1-minimal for dropping operators.

        Each candidate without one operator was queried, and the verdict was neither
        REPRODUCED nor UNRESOLVED. No strategy drops operators of a printed program: the
        search before it did.
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
        """For each kind of rewrite, whether no single rewrite can be made.

        Each single rewrite that makes a valid and smaller program was queried, with a
        verdict as for ``minimal``.
        """
        minimal: dict[Kind, bool] = {}
        for strategy in self._strategies:
            if isinstance(strategy, Rewriter) and self.best.listing is not None:
                steps = single_steps(self.best, strategy, self._fitter)
                kind = Kind(strategy.kind)
                minimal[kind] = minimal.get(kind, True) and all(
                    map(self._is_refused, steps)
                )
        return minimal

    def _is_refused(self, candidate: Candidate) -> bool:
        final = {Outcome.PASSED, Outcome.DIFFERENT, Outcome.INVALID}
        verdict = self.asker.find_verdict(candidate)
        return verdict is not None and verdict.outcome in final


def _bytes_of(candidate: Candidate) -> int:
    """Return the bytes of a printed program's inputs and weights; 0 without one."""
    return candidate.listing.nbytes if candidate.listing else 0
