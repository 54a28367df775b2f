"""The query cache and the budget: answer each query once, and count it."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Protocol, runtime_checkable

from shrinkfx.errors import BudgetExhausted, PhaseLimitReached
from shrinkfx.failure.signature import Signature
from shrinkfx.failure.verdict import Learner, Oracle, Outcome, Verdict
from shrinkfx.journal.journal import STOCK, Journal
from shrinkfx.program.candidate import Candidate
from shrinkfx.search.search_state import SearchState

# Shrink Ray calls this ``is_interesting``. This module does not decide what to query:
# the reducer, or another owner of an ``Asker``, does.
#
# A query that is not in memory goes to the journal, which has the answers of earlier
# sessions; then to the oracle, if the budget has a check left.


@runtime_checkable
class SearchFollower(Protocol):
    """An oracle that follows the state of a search, and so can speculate."""

    def follow(
        self, search: SearchState, known: Callable[[Candidate], Verdict | None]
    ) -> None: ...

    def stop_following(self) -> None: ...


class Asker:
    """The query cache for candidates in one form and build. No digest is checked twice.

    Args:
        again: if a check was killed, query the oracle again, whatever killed the check.
        most: the highest number of queries, including those that the journal answers.

    Attributes:
        budget: pays for queries; an answer from memory is free.
        form: the form of the candidates, for the journal.
        build: the build of the candidates, for the journal.
        cached: the number of queries that were answered from memory.
        by_catch: candidates that show other failures, with their verdicts.
    """

    def __init__(
        self,
        oracle: Oracle,
        *,
        budget: Budget | None = None,
        journal: Journal | None = None,
        form: str = "program",
        build: str = STOCK,
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
        """Return the verdict on a candidate, from memory if it is known.

        Args:
            strategy: the name of the strategy that makes the query, for the journal.
            judged: whether confirmations may turn REPRODUCED into PASSED.
            shown: a known failure. The results must differ from eager in the same
                respect (values, shape, dtype) as in this failure. None allows any
                difference.

        Raises:
            BudgetExhausted: the verdict is unknown, and the budget allows no check.
            PhaseLimitReached: the verdict is unknown, and ``most`` queries were made.
        """
        verdict = self._answers.get(candidate.digest)
        if verdict is not None:
            self.cached += 1
            return self._apply_confirmations(candidate, verdict) if judged else verdict
        if self._most is not None and self.query_count >= self._most:
            raise PhaseLimitReached(f"its limit of {self._most} checks reached")
        verdict = self._recalled(candidate) or self._query_oracle(
            strategy, candidate, shown
        )
        # Keep no logs in memory: there may be thousands, each of half a megabyte.
        verdict = replace(verdict, observation=replace(verdict.observation, log=""))
        self._answers[candidate.digest] = verdict
        verdict = self._apply_confirmations(candidate, verdict) if judged else verdict
        if verdict.outcome is Outcome.DIFFERENT:
            self.by_catch.append((candidate, verdict))
        return verdict

    @contextmanager
    def speculate_for(self, search: SearchState) -> Iterator[None]:
        """Have a speculating oracle follow a search until the block ends."""
        if not isinstance(self._oracle, SearchFollower):
            yield
            return
        self._oracle.follow(search, self.find_verdict)
        try:
            yield
        finally:
            self._oracle.stop_following()

    def add_confirmation(self, judge: Confirmation) -> None:
        """Add a confirmation: later, a candidate that it refuses counts as PASSED."""
        self._judges.append(judge)

    def find_verdict(self, candidate: Candidate) -> Verdict | None:
        """Return the last verdict on a candidate, or None if it was not queried."""
        answer = self._answers.get(candidate.digest)
        return self._taken_back.get(candidate.digest, answer)

    def has_reproduced(self, candidate: Candidate) -> bool:
        """Tell whether a candidate was queried and reproduced the failure."""
        known = self.find_verdict(candidate)
        return known is not None and known.reproduced

    def find_signature(self, candidate: Candidate) -> Signature | None:
        """Return the failure that a candidate showed, or None if it is unknown."""
        verdict = self.find_verdict(candidate)
        if verdict is None:
            return self._seen_elsewhere.get(candidate.digest)
        return verdict.observation.signature

    def record_failure(self, candidate: Candidate, failure: Signature) -> None:
        """Record the failure of a candidate that is not queried: the input program."""
        self._seen_elsewhere[candidate.digest] = failure

    def verdicts(self) -> list[Verdict]:
        """List every verdict that the budget paid for, in order."""
        return list((self._answers | self._taken_back).values())

    @property
    def query_count(self) -> int:
        """The number of candidates that were queried."""
        return len(self._answers)

    def _apply_confirmations(self, candidate: Candidate, verdict: Verdict) -> Verdict:
        """Turn REPRODUCED into PASSED if a confirmation refuses the candidate."""
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
        """Return an earlier session's verdict from the journal, and count its check."""
        query = candidate, self.form, self.build
        verdict = self._journal.recall(*query, again=self._again)
        if verdict is not None:
            self.budget.count()
            if isinstance(self._oracle, Learner):
                self._oracle.learn(candidate, verdict)
        return verdict

    def _query_oracle(
        self, strategy: str, candidate: Candidate, shown: Signature | None
    ) -> Verdict:
        """Query the oracle; the journal records the query before the answer."""

        def check(candidate: Candidate) -> Verdict:
            return self._oracle.check(candidate).require_difference_of(shown)

        self.budget.spend()
        began = self.budget.seconds
        request = strategy, self.form, candidate, self.build
        verdict = self._journal.ask(*request, check)
        check_s = verdict.observation.seconds
        self.budget.record_wait(self.budget.seconds - began, check_s)
        return verdict


@dataclass(frozen=True)
class Confirmation:
    """An expensive query, made only about candidates that fail by a cheap query.

    Examples: does the candidate fail without guard pages? Does its repro fail? The
    result of a search is confirmed first, and from then on each step.

    Attributes:
        name: the name of this query in the journal.
        asker: the query cache, with a budget of its own. REPRODUCED confirms. A check
            that was killed refuses nothing (``again``), because the candidate is not
            the cause.
        refusal: the reason to report for a candidate that is not confirmed.
    """

    name: str
    asker: Asker
    refusal: str

    def confirms(self, candidate: Candidate) -> bool:
        """Tell whether a candidate fails by this query too."""
        return self.asker.ask(self.name, candidate).reproduced


_PACE_CHECKS = 20
"""The number of last checks whose mean time, in seconds, predicts the next one."""

_PARTS = 4
"""The divisor of the seconds left that gives the share of an optional phase."""

_RESERVE_CHECKS = 2
"""The time kept for the repro, in checks of the input program.

It covers one check of the input program's repro and its overhead, or three checks of
smaller repros."""


@dataclass
class Budget:
    """A limit on the number of checks and on the time; ``None`` means no limit.

    Attributes:
        seconds_before: the seconds that earlier sessions of the run have used.
        reserve_s: the seconds that must be left when the checks end, for the repro.
        check_s: the time of a check of the input program, as far as known.
        overtime_s: the seconds beyond the limit that a mandatory phase may use.
    """

    max_checks: int | None = None
    max_seconds: float | None = None
    clock: Callable[[], float] = time.monotonic
    checks: int = 0
    seconds_before: float = 0.0
    reserve_s: float = 0.0
    check_s: float = 0.0
    overtime_s: float = 0.0
    started: float = field(init=False)
    _pace: deque[float] = field(default_factory=lambda: deque(maxlen=_PACE_CHECKS))
    _checks_s: deque[float] = field(default_factory=lambda: deque(maxlen=_PACE_CHECKS))

    def __post_init__(self) -> None:
        self.started = self.clock()

    @property
    def seconds(self) -> float:
        return self.seconds_before + self.clock() - self.started

    @property
    def seconds_left(self) -> float | None:
        if self.max_seconds is None:
            return None
        return max(0.0, self.spare_s + self.overtime_s)

    @property
    def spare_s(self) -> float:
        """Seconds left beyond the reserve for the repro; negative if that is used."""
        if self.max_seconds is None:
            return math.inf
        return self.max_seconds - self.reserve_s - self.seconds

    @property
    def pace_s(self) -> float:
        """The expected time of the next check: the last ones' mean, or ``check_s``."""
        last = self._checks_s
        return sum(last) / len(last) if last else self.check_s

    def has(self, seconds: float) -> bool:
        """Tell whether so many seconds are left beyond the reserve for the repro."""
        return self.spare_s >= seconds

    def share(self) -> float:
        """Return the seconds that an optional phase may take."""
        return max(0.0, self.spare_s) / _PARTS

    def keep(self, check_s: float) -> None:
        """Reserve the time to write and verify a repro, even of the whole program.

        Args:
            check_s: the time that a check of the program took.
        """
        self.check_s = max(self.check_s, check_s)
        if self.max_seconds is not None:
            self.reserve_s = _RESERVE_CHECKS * self.check_s

    def guarantee_seconds(self, seconds: float) -> None:
        """Guarantee that so many seconds are left, beyond the limit if necessary."""
        if self.max_seconds is not None:
            self.overtime_s = max(0.0, seconds - self.spare_s)

    def record_wait(self, seconds: float, check_s: float = 0.0) -> None:
        """Record how long the search waited for an answer.

        Args:
            check_s: the time of the check, which may have begun as a speculation.
        """
        self._pace.append(seconds)
        self._checks_s.append(max(seconds, check_s))

    def time_for(self, checks: float) -> float | None:
        """Estimate the seconds of the next checks; None before the first check.

        The estimate uses the last waits, because checks get faster as programs shrink.
        It counts no more checks than the budget has.
        """
        if not self._pace:
            return None
        if self.max_checks is not None:
            checks = min(checks, self.max_checks - self.checks)
        return max(0.0, checks) * sum(self._pace) / len(self._pace)

    def spend(self) -> None:
        """Count one check.

        Raises:
            BudgetExhausted: no check or no time is left.
        """
        if self.max_checks is not None and self.checks >= self.max_checks:
            raise BudgetExhausted(f"limit of {self.max_checks} checks reached")
        if self.seconds_left == 0.0:
            raise BudgetExhausted(
                f"time limit of {self.seconds / 60:.1f} minutes reached"
            )
        self.count()

    def count(self) -> None:
        """Count a check without testing the limits, because it is paid for already."""
        self.checks += 1
