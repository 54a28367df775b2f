"""Answers: each question is put once, and paid for, written down and remembered.

What Shrink Ray calls ``is_interesting``. Nothing here decides what is asked about: that
is up to the reducer, or whoever else holds an ``Asker``.

A question that the memory does not answer goes to the journal, which knows what an
earlier session was told; then to the oracle, if the budget has a check left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

from shrinkfx.errors import ShareSpent
from shrinkfx.failure.signature import Signature
from shrinkfx.failure.verdict import Learner, Oracle, Outcome, Verdict
from shrinkfx.journal.journal import Journal
from shrinkfx.program.candidate import Candidate
from shrinkfx.protocol.choices import Build
from shrinkfx.search.budget import Budget
from shrinkfx.search.course import Course


@runtime_checkable
class Follower(Protocol):
    """An oracle that goes by where a search stands, to ask ahead of it."""

    def follow(
        self, course: Course, known: Callable[[Candidate], Verdict | None]
    ) -> None: ...

    def rest(self) -> None: ...


class Asker:
    """Answers for candidates in one form and build. No digest is asked about twice.

    Args:
        again: put a question to the oracle once more where it was killed, whatever
            killed it.
        most: questions that it puts at most, those that a journal answers included.

    Attributes:
        budget: what questions are paid from; answers from memory are free.
        form: the form candidates are asked about in, for the journal.
        build: how they are built, for the journal.
        cached: questions that were answered from memory.
        by_catch: candidates that fail, but differently.
    """

    def __init__(
        self,
        oracle: Oracle,
        *,
        budget: Budget | None = None,
        journal: Journal | None = None,
        form: str = "program",
        build: str = Build.STOCK,
        again: bool = False,
        most: int | None = None,
    ) -> None:
        self._oracle = oracle
        self.budget = budget or Budget()
        self._journal = journal or Journal()
        self.form = form
        self.build = build
        self._again, self._most = again, most
        self._answers: dict[str, Verdict] = {}
        self._taken_back: dict[str, Verdict] = {}
        self._seen_elsewhere: dict[str, Signature] = {}
        self._judges: list[Confirmation] = []
        self.cached = 0
        self.by_catch: list[tuple[Candidate, Verdict]] = []

    def ask(
        self,
        strategy: str,
        candidate: Candidate,
        *,
        judged: bool = True,
        shown: Signature | None = None,
    ) -> Verdict:
        """Fetch the verdict on a candidate, from memory if it is known.

        Args:
            strategy: who wants to know; for the journal.
            judged: let the judges take back that it fails.
            shown: a failure in which the same differs; None where anything may.

        Raises:
            BudgetExhausted: it is not known and may not be asked.
        """
        verdict = self._answers.get(candidate.digest)
        if verdict is not None:
            self.cached += 1
            return self._judged(candidate, verdict) if judged else verdict
        if self._most is not None and self.asked_about >= self._most:
            raise ShareSpent(f"limit of {self._most} checks reached")
        verdict = self._recalled(candidate) or self._asked(strategy, candidate, shown)
        # Half a megabyte of a log, thousands of times, is more than the journal's.
        verdict = replace(verdict, observation=replace(verdict.observation, log=""))
        self._answers[candidate.digest] = verdict
        verdict = self._judged(candidate, verdict) if judged else verdict
        if verdict.outcome is Outcome.DIFFERENT:
            self.by_catch.append((candidate, verdict))
        return verdict

    @contextmanager
    def following(self, course: Course) -> Iterator[None]:
        """Have an oracle that asks ahead follow a search, whatever ends that."""
        if not isinstance(self._oracle, Follower):
            yield
            return
        self._oracle.follow(course, self.known)
        try:
            yield
        finally:
            self._oracle.rest()

    def confirm_by(self, judge: Confirmation) -> None:
        """From now on, take back that a candidate fails unless a judge confirms it."""
        self._judges.append(judge)

    def known(self, candidate: Candidate) -> Verdict | None:
        """Return the last answer about a candidate, or None if it was not asked."""
        answer = self._answers.get(candidate.digest)
        return self._taken_back.get(candidate.digest, answer)

    def has_reproduced(self, candidate: Candidate) -> bool:
        """Tell whether a candidate was asked about and fails."""
        known = self.known(candidate)
        return known is not None and known.reproduced

    def shown_by(self, candidate: Candidate) -> Signature | None:
        """Return the failure of a candidate in its own words, if it is known."""
        verdict = self.known(candidate)
        if verdict is None:
            return self._seen_elsewhere.get(candidate.digest)
        return verdict.observation.signature

    def saw(self, candidate: Candidate, failure: Signature) -> None:
        """Take note of the failure of one that nobody asks about: the original."""
        self._seen_elsewhere[candidate.digest] = failure

    def verdicts(self) -> list[Verdict]:
        """List every answer that was paid for, in order."""
        return list((self._answers | self._taken_back).values())

    @property
    def asked_about(self) -> int:
        """Count the candidates that were asked about."""
        return len(self._answers)

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

    def _recalled(self, candidate: Candidate) -> Verdict | None:
        """Fetch the answer that an earlier session was given, and paid for."""
        about = candidate, self.form, self.build
        verdict = self._journal.recall(*about, again=self._again)
        if verdict is not None:
            self.budget.count()
            if isinstance(self._oracle, Learner):
                self._oracle.learn(candidate, verdict)
        return verdict

    def _asked(
        self, strategy: str, candidate: Candidate, shown: Signature | None
    ) -> Verdict:
        """Ask the oracle, with the question written down before the answer."""

        def check(candidate: Candidate) -> Verdict:
            return self._oracle.check(candidate).held_to(shown)

        self.budget.spend()
        began = self.budget.seconds
        asked = strategy, self.form, candidate, self.build
        verdict = self._journal.ask(*asked, check)
        check_s = verdict.observation.seconds
        self.budget.took(self.budget.seconds - began, check_s)
        return verdict


@dataclass(frozen=True)
class Confirmation:
    """An expensive question, put only about what fails by a cheap one.

    Whether it fails without guard pages, say, or whether its repro does. What a search
    has found is confirmed by it, and from then on each step.

    Attributes:
        name: what the journal calls it.
        asker: REPRODUCED confirms. Its budget is its own, and what was killed has
            refused nothing (``again``): the candidate is not to blame.
        refusal: what is said of a candidate that is not confirmed.
    """

    name: str
    asker: Asker
    refusal: str

    def confirms(self, candidate: Candidate) -> bool:
        """Tell whether a candidate fails by this question too."""
        return self.asker.ask(self.name, candidate).reproduced
