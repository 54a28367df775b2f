"""The main loop: take edits from strategies, ask the oracle, keep what fails.

Everything that costs something happens here and only here. What is asked about
next is up to ``odds``, and what need not be asked to ``refusals``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from shrinkfx.errors import InvalidEdit
from shrinkfx.events import Checked, Listener, Stepped, ignore
from shrinkfx.failure.signature import Signature
from shrinkfx.failure.verdict import Learner, Oracle, Outcome, Verdict
from shrinkfx.journal.journal import Journal
from shrinkfx.program.apply import apply, left_of
from shrinkfx.program.candidate import Candidate, Outputs
from shrinkfx.program.edits import Drop, Edit
from shrinkfx.program.view import NOBODY
from shrinkfx.protocol.choices import Build
from shrinkfx.search.budget import Budget
from shrinkfx.search.judges import Judge
from shrinkfx.search.odds import Odds
from shrinkfx.search.rejections import Refusals
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
        suspects: Mapping[str, float] = NOBODY,
        budget: Budget | None = None,
        journal: Journal | None = None,
        listener: Listener = ignore,
        form: str = "program",
        build: str = Build.STOCK,
    ) -> None:
        self._oracle = oracle
        self._strategies = strategies
        self._suspects = suspects
        self._budget = budget or Budget()
        self._journal = journal or Journal()
        self._listener = listener
        self.form = form
        self.build = build
        self._answers: dict[str, Verdict] = {}
        self._taken_back: dict[str, Verdict] = {}
        self.cached = 0
        self.by_catch: list[tuple[Candidate, Verdict]] = []
        self._judges: list[Judge] = []
        self.restart(best)

    def restart(self, best: Candidate) -> None:
        """Go on from another candidate that is known to fail; keep all answers."""
        self.best = best
        self.history = [best]
        self._answers_at_step = len(self._answers)
        self._refusals = Refusals()
        self._odds = Odds(self._suspects, best.cost[0])
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

    def confirm_by(self, judge: Judge) -> None:
        """From now on, have what fails confirmed before it is a step."""
        self._judges.append(judge)

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
        if strategy.combines:
            yield from self._combine(strategy, policy)
            return
        start = None
        while start is not self.best:
            start = self.best
            for edit in proposals(strategy, start, self._suspects):
                # What a step has done in part does not fit any more.
                if self._accepts(strategy, policy, [edit]):
                    yield self.best

    def _combine(self, strategy: Strategy, policy: Outputs) -> Iterator[Candidate]:
        """Make the edits that can be made, in bundles, until each was refused alone.

        Not to a fixed point: another strategy may free what this one could not, and
        every step makes the questions after it new.
        """
        edits = list(dict.fromkeys(proposals(strategy, self.best, self._suspects)))
        self._odds.begin(self.best.cost[0])
        stuck: set[Edit] = set()  # refused alone; for another round
        while bundle := self._odds.bundle([e for e in edits if e not in stuck]):
            if self._accepts(strategy, policy, bundle):
                yield self.best
                self._odds.accepted(bundle)
                edits = [e for edit in edits if (e := left_of(edit, self.best))]
            else:
                self._odds.refused(bundle)
                if len(bundle) == 1:
                    stuck.update(bundle)

    def _accepts(
        self, strategy: Strategy, policy: Outputs, edits: Sequence[Edit]
    ) -> bool:
        """Apply ``edits`` to the best candidate and keep the result if it fails."""
        try:
            candidate = apply(self.best, edits).returning(policy)
        except InvalidEdit:
            return False
        if candidate.cost >= self.best.cost:
            return False
        if self._refusals.rule_out(edits, candidate):
            return False
        verdict = self.ask(strategy.name, candidate)
        if verdict.reproduced:
            self._step(strategy.name, candidate)
        else:
            self._refusals.note(edits, candidate, verdict.outcome)
        return verdict.reproduced

    def ask(
        self, strategy: str, candidate: Candidate, *, judged: bool = True
    ) -> Verdict:
        """Fetch the verdict on a candidate, from memory if it is known.

        Args:
            strategy: who wants to know; for the journal.
            judged: let the judges take back that it fails.

        Raises:
            BudgetExhausted: it is not known and may not be asked.
        """
        known = self._answers.get(candidate.digest)
        if known is not None:
            self.cached += 1
            return self._judged(candidate, known) if judged else known
        verdict = self._recalled(candidate) or self._asked(strategy, candidate)
        # Half a megabyte of a log, thousands of times, is more than the journal's.
        verdict = replace(verdict, observation=replace(verdict.observation, log=""))
        self._answers[candidate.digest] = verdict
        verdict = self._judged(candidate, verdict) if judged else verdict
        if verdict.outcome is Outcome.DIFFERENT:
            self.by_catch.append((candidate, verdict))
        self._listener(
            Checked(
                self._budget.checks,
                verdict.outcome,
                self.best.cost[0],
                self._budget.seconds,
                self._budget.seconds_left,
                strategy,
                candidate.cost[0],
                str(verdict.observation.signature or ""),
                self._budget.time_for(self._questions_left(candidate, verdict)),
            )
        )
        return verdict

    def _judged(self, candidate: Candidate, verdict: Verdict) -> Verdict:
        """Take back that a candidate fails where a judge does not confirm it."""
        if not verdict.reproduced:
            return verdict
        for judge in self._judges:
            if not judge.confirms(candidate):
                seen = replace(verdict.observation, signature=None)
                verdict = Verdict(Outcome.PASSED, replace(seen, stopped=judge.refusal))
                self._taken_back[candidate.digest] = verdict
                break
        return verdict

    def _questions_left(self, candidate: Candidate, verdict: Verdict) -> float:
        """Estimate how many questions the search still has after this one."""
        if verdict.reproduced:  # it goes on from there
            return max(1.0, self._odds.outlook(candidate.operators))
        since = len(self._answers) - self._answers_at_step
        return max(1.0, self._odds.outlook(self.best.operators) - since)

    def _recalled(self, candidate: Candidate) -> Verdict | None:
        """Fetch the answer that an earlier session was given, and paid for."""
        verdict = self._journal.recall(candidate, self.form, self.build)
        if verdict is not None:
            self._budget.count()
            if isinstance(self._oracle, Learner):
                self._oracle.learn(candidate, verdict)
        return verdict

    def _asked(self, strategy: str, candidate: Candidate) -> Verdict:
        """Ask the oracle, with the question written down before the answer."""
        self._budget.spend()
        began, check = self._budget.seconds, self._oracle.check
        asked = strategy, self.form, candidate, self.build
        verdict = self._journal.ask(*asked, check)
        self._budget.took(self._budget.seconds - began)
        return verdict

    def has_reproduced(self, candidate: Candidate) -> bool:
        """Tell whether a candidate was asked about and fails."""
        known = self._known(candidate)
        return known is not None and known.reproduced

    def _known(self, candidate: Candidate) -> Verdict | None:
        answer = self._answers.get(candidate.digest)
        return self._taken_back.get(candidate.digest, answer)

    def _step(self, strategy: str, candidate: Candidate) -> None:
        before, after = self.best.cost[0], candidate.cost[0]
        self.best = candidate
        self.history.append(candidate)
        self._answers_at_step = len(self._answers)
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
                smaller = apply(self.best, [Drop(frozenset({node}))])
            except InvalidEdit:
                continue
            verdict = self._known(smaller)
            if verdict is None or verdict.outcome not in final:
                return False
        return True

    @property
    def seen(self) -> Signature | None:
        """The failure that the best candidate showed, in its own words."""
        return self.shown_by(self.best)

    def shown_by(self, candidate: Candidate) -> Signature | None:
        """Return the failure of a candidate that was asked about."""
        verdict = self._known(candidate)
        return verdict.observation.signature if verdict else None

    def verdicts(self) -> list[Verdict]:
        """List every answer that was paid for, in order."""
        return list((self._answers | self._taken_back).values())
