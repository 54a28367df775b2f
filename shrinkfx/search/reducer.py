"""The main loop: take edits from strategies, ask the oracle, keep what fails.

Everything that costs something happens here and only here. Bundles of edits are
split as in group testing (after Hwang's generalised binary splitting): a bundle
that is refused holds an edit that must not be made. Halving finds the first one,
and makes those before it on the way. Bundles grow while they are accepted and
shrink at each edit that is not.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence

from shrinkfx.errors import InvalidEdit
from shrinkfx.failure.signature import Signature
from shrinkfx.failure.verdict import Oracle, Outcome, Verdict
from shrinkfx.program.candidate import Candidate, Outputs
from shrinkfx.program.edits import Drop, Edit
from shrinkfx.program.fit import left_of
from shrinkfx.program.messages import Build
from shrinkfx.search.budget import Budget
from shrinkfx.search.events import Checked, Listener, Stepped, ignore
from shrinkfx.search.journal import Journal
from shrinkfx.search.refusals import Refusals
from shrinkfx.search.strategy import Strategy, proposals

logger = logging.getLogger(__name__)


class Reducer:
    """Shrink ``best`` while the oracle answers REPRODUCED.

    Invariants: ``best`` has always reproduced the failure; ``best.cost`` only
    falls; no digest is asked twice.

    Attributes:
        best: the smallest candidate so far.
        history: every accepted candidate, the starting one first.
        cached: questions that were answered without asking.
        by_catch: candidates that fail, but differently.
        form: the form its candidates are asked about in, for the journal.
        build: how they are built, for the journal.
    """

    def __init__(
        self,
        best: Candidate,
        oracle: Oracle,
        strategies: Sequence[Strategy],
        *,
        budget: Budget | None = None,
        journal: Journal | None = None,
        listener: Listener = ignore,
        form: str = "program",
        build: str = Build.STOCK,
    ) -> None:
        self._oracle = oracle
        self._strategies = strategies
        self._budget = budget or Budget()
        self._journal = journal
        self._listener = listener
        self.form = form
        self.build = build
        self._answers: dict[str, Verdict] = {}
        self.cached = 0
        self.by_catch: list[tuple[Candidate, Verdict]] = []
        self.restart(best)

    def restart(self, best: Candidate) -> None:
        """Go on from another candidate that is known to fail; keep all answers."""
        self.best = best
        self.history = [best]
        self._refusals = Refusals()
        self._steps = self._steps_down()

    def run(self, pause: Callable[[Candidate], bool] | None = None) -> Candidate:
        """Apply every strategy to a fixed point.

        Args:
            pause: return as soon as the best candidate satisfies this; a second
                call goes on with the very next question.

        Raises:
            BudgetExhausted: ``best`` holds what was reached.
        """
        while not (pause and pause(self.best)):
            if next(self._steps, None) is None:
                break
        return self.best

    def _policies(self) -> tuple[Outputs, Outputs]:
        """Return fewer values first, unless that alone hides the failure.

        What is returned cannot be fused away, and what is not returned can.
        """
        fewer = self.best.returning(Outputs.SINKS)
        if fewer.digest == self.best.digest or self.ask("outputs", fewer).reproduced:
            return Outputs.SINKS, Outputs.ORIGINAL
        return Outputs.ORIGINAL, Outputs.SINKS

    def _steps_down(self) -> Iterator[Candidate]:
        """Yield each accepted candidate until no strategy finds another."""
        policies = self._policies()
        while True:
            before = self.best.cost
            for policy in policies:
                for strategy in self._strategies:
                    yield from self._exhaust(strategy, policy)
            if self.best.cost == before:
                return

    def _exhaust(self, strategy: Strategy, policy: Outputs) -> Iterator[Candidate]:
        """Go through a strategy's edits once.

        Alternatives are proposed anew for each candidate that one of them led to.
        """
        start = None
        while start is not self.best:
            start = self.best
            yield from self._split(strategy, policy, proposals(strategy, start))
            if strategy.combines:
                break

    def _split(
        self, strategy: Strategy, policy: Outputs, edits: Sequence[Edit]
    ) -> Iterator[Candidate]:
        """Make the edits that can be made, in bundles that adapt."""
        widest = len(edits) if strategy.combines else 1
        width = min(widest, self._refusals.first_width(edits))
        suspects = 0  # so many of the edits ahead were refused as one
        done = 0
        while done < len(edits):
            size = max(1, suspects // 2) if suspects else width
            bundle = edits[done : done + size]
            if self._accepts(strategy, policy, bundle):
                yield self.best
                width = width if suspects else min(widest, 2 * width)
                suspects = max(0, suspects - size)
            elif len(bundle) > 1:
                suspects, size = len(bundle), 0
            else:
                width, suspects = max(1, width // 2), 0
            done += size

    def _accepts(
        self, strategy: Strategy, policy: Outputs, edits: Sequence[Edit]
    ) -> bool:
        """Apply ``edits`` to the best candidate and keep the result if it fails.

        What an earlier step has already done is left out.
        """
        left = [e for edit in edits if (e := left_of(edit, self.best))]
        try:
            candidate = self.best.edit(left).returning(policy)
        except InvalidEdit:
            return False
        if candidate.cost >= self.best.cost:
            return False
        if self._refusals.rule_out(left, candidate):
            return False
        verdict = self.ask(strategy.name, candidate)
        if verdict.reproduced:
            self._step(strategy.name, candidate)
        else:
            self._refusals.note(left, candidate, verdict.outcome)
        return verdict.reproduced

    def ask(self, strategy: str, candidate: Candidate) -> Verdict:
        """Fetch the verdict on a candidate, from memory if it is known.

        Args:
            strategy: who wants to know; for the journal.

        Raises:
            BudgetExhausted: it is not known and may not be asked.
        """
        known = self._answers.get(candidate.digest)
        if known is not None:
            self.cached += 1
            return known
        self._budget.spend()
        verdict = self._recorded(strategy, candidate)
        self._answers[candidate.digest] = verdict
        if verdict.outcome is Outcome.DIFFERENT:
            self.by_catch.append((candidate, verdict))
        self._listener(
            Checked(
                self._budget.checks,
                verdict.outcome,
                self.best.cost[0],
                self._budget.seconds,
                self._budget.seconds_left,
            )
        )
        return verdict

    def _recorded(self, strategy: str, candidate: Candidate) -> Verdict:
        """Ask the oracle, with the question written down before the answer."""
        if self._journal is None:
            return self._oracle.check(candidate)
        number = self._journal.asked(strategy, self.form, candidate, self.build)
        verdict = self._oracle.check(candidate)
        self._journal.answered(number, verdict)
        return verdict

    def has_reproduced(self, candidate: Candidate) -> bool:
        """Tell whether a candidate was asked about and fails."""
        known = self._answers.get(candidate.digest)
        return known is not None and known.reproduced

    def _step(self, strategy: str, candidate: Candidate) -> None:
        before, after = self.best.cost[0], candidate.cost[0]
        self.best = candidate
        self.history.append(candidate)
        check, seconds = self._budget.checks, self._budget.seconds
        logger.info(
            "%d -> %d operators  %s  check %d  %.0f s",
            *(before, after, strategy, check, seconds),
        )
        self._listener(Stepped(before, after, strategy, check, seconds))

    @property
    def minimal(self) -> bool:
        """Tell whether dropping any one operator was answered, and never by
        REPRODUCED or UNRESOLVED."""
        final = {Outcome.PASSED, Outcome.DIFFERENT, Outcome.INVALID}
        for node in self.best.operators:
            try:
                smaller = self.best.edit([Drop(frozenset({node}))])
            except InvalidEdit:
                continue
            verdict = self._answers.get(smaller.digest)
            if verdict is None or verdict.outcome not in final:
                return False
        return True

    @property
    def seen(self) -> Signature | None:
        """The failure that the best candidate showed, in its own words."""
        verdict = self._answers.get(self.best.digest)
        return verdict.observation.signature if verdict else None

    def verdicts(self) -> list[Verdict]:
        """List every answer that was paid for, in order."""
        return list(self._answers.values())
