"""Ask ahead, in several lanes, what a search is about to ask.

The search itself is sequential: it asks a question, waits for the answer, and asks the
next. While it waits, what it would ask after either answer is asked already, the most
probable questions first (``forecast``). What an answer has made useless is ended.

An answer is handed over only when the search asks for it. So with any number of lanes
the search is the same: its questions, their order, what it learns from an answer and
when, what it pays. What was answered and not asked for is in the journal, apart.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from itertools import islice
from typing import Protocol, runtime_checkable

from shrinkfx.failure.verdict import (
    Learner,
    Observation,
    Oracle,
    Outcome,
    Undecided,
    Verdict,
)
from shrinkfx.journal.ahead import Ahead
from shrinkfx.journal.journal import LOG_CHARS, Journal
from shrinkfx.program.candidate import Candidate
from shrinkfx.search.course import Course
from shrinkfx.search.forecast import Place

_PLACES = 8
"""Places of a forecast that are looked at for each lane, at most."""


class Pending(Protocol):
    """One question under way."""

    def done(self) -> bool: ...

    def result(self) -> Verdict:
        """Wait for the answer; raise what the oracle has raised.

        Raises:
            Undecided: others beside it may be to blame that there is none.
        """
        ...

    def cancel(self) -> None:
        """End and kill it; nothing happens if it is done."""
        ...

    def count(self) -> None:
        """Count among all what its answer has taken: the search is given that."""
        ...


class Lanes(Protocol):
    """Where questions are answered side by side.

    A question goes by what the oracle has learnt when it begins, and teaches it
    nothing. Whatever goes wrong with it, its result raises.

    Attributes:
        count: how many questions may be under way at once.
    """

    count: int

    def begin(self, candidate: Candidate) -> Pending:
        """Ask in a free lane."""
        ...

    def wait(self, pending: Collection[Pending]) -> None:
        """Wait until at least one of them is done."""
        ...

    def alone(self, candidate: Candidate) -> Verdict:
        """Ask what stayed undecided, when nothing else is under way."""
        ...


@runtime_checkable
class Reviewer(Protocol):
    """An oracle whose earlier answers decide how it asks."""

    def stands(self, candidate: Candidate, verdict: Verdict) -> bool:
        """Tell whether what was answered ahead is what it would answer now."""
        ...


@dataclass(frozen=True)
class _Asked:
    """A question under way.

    Attributes:
        early: it was begun before the search had asked it.
    """

    candidate: Candidate
    pending: Pending
    early: bool


def _nothing(candidate: Candidate) -> None:
    """Know nothing of a candidate."""


class Foreseeing:
    """An oracle that asks in lanes, and ahead of a search while it follows one.

    Attributes:
        asked_ahead: questions that were begun before the search had asked them.
        of_use: those of them whose answers it has been given.
    """

    def __init__(
        self, oracle: Oracle, lanes: Lanes, ahead: Ahead | None = None
    ) -> None:
        """Ask ahead of a search.

        Args:
            oracle: learns from what the search is told; the lanes ask for it.
            ahead: where answers are kept that the search has not asked for yet.
        """
        self._oracle, self._lanes = oracle, lanes
        self._ahead = ahead or Ahead(Journal())
        self._under_way: dict[str, _Asked] = {}
        self._found: dict[str, Verdict | None] = {}  # None: nor is it in the journal
        self._uncounted: dict[str, Pending] = {}
        self._course: Course | None = None
        self._memory: Callable[[Candidate], Verdict | None] = _nothing
        self._place: Place | None = None
        self.asked_ahead = self.of_use = 0

    def follow(
        self, course: Course, known: Callable[[Candidate], Verdict | None]
    ) -> None:
        """Ask ahead of a search from now on.

        Args:
            known: tells what the search will be told without asking.
        """
        self._course, self._memory = course, known

    def rest(self) -> None:
        """End all that is under way, and follow nobody."""
        self._course, self._memory, self._place = None, _nothing, None
        running = [a for a in self._under_way.values() if not a.pending.done()]
        for asked in running:
            asked.pending.cancel()
        self._gather()
        for asked in running:
            self._end(asked)
        self._under_way.clear()

    def check(self, candidate: Candidate) -> Verdict:
        try:
            verdict = self._answer(candidate)
        except BaseException:
            self.rest()
            raise
        self.learn(candidate, verdict)
        return verdict

    def learn(self, candidate: Candidate, verdict: Verdict) -> None:
        """Have the oracle go by an answer that the search is given."""
        if isinstance(self._oracle, Learner):
            self._oracle.learn(candidate, verdict)

    # --- the question of the search

    def _answer(self, candidate: Candidate) -> Verdict:
        self._gather()
        self._place = self._place_of(candidate)
        while True:
            if verdict := self._from_ahead(candidate):
                return verdict
            self._look_ahead(candidate)
            self._lanes.wait([asked.pending for asked in self._under_way.values()])
            self._gather()
            asked = self._under_way.get(candidate.digest)
            if asked and not asked.early and asked.pending.done():
                del self._under_way[candidate.digest]
                return self._decided(asked)

    def _decided(self, asked: _Asked) -> Verdict:
        try:
            verdict = asked.pending.result()
        except Undecided:
            return self._lanes.alone(asked.candidate)
        asked.pending.count()
        return verdict

    def _from_ahead(self, candidate: Candidate) -> Verdict | None:
        """Hand over what was answered ahead, once; None if it is to be asked (anew)."""
        verdict = self._recalled(candidate)
        if verdict is None:
            return None
        self._found[candidate.digest] = None
        self._ahead.withdrawn(candidate)
        pending = self._uncounted.pop(candidate.digest, None)
        if not self._stands(candidate, verdict):
            return None
        if pending:  # and not of an earlier session
            pending.count()
        self.of_use += 1
        return verdict

    def _stands(self, candidate: Candidate, verdict: Verdict) -> bool:
        """Tell whether an answer is what the oracle would say now."""
        if verdict.outcome is Outcome.UNRESOLVED:
            return False
        oracle = self._oracle
        return not isinstance(oracle, Reviewer) or oracle.stands(candidate, verdict)

    # --- the questions after it

    def _place_of(self, candidate: Candidate) -> Place | None:
        """Find where the search stands; None if nobody knows why it asks this."""
        if self._course is None or self._lanes.count == 1:
            return None
        place = self._place
        while place and (question := place.question):
            if question.candidate.digest == candidate.digest:
                return place
            outcome = self._known(question.candidate)
            place = place.after(outcome) if outcome else None
        # It was told something else than the answer: a judge has taken that back, say.
        question = self._course.question()
        if question is None or question.candidate.digest != candidate.digest:
            return None
        return Place(self._course.foreseen())

    def _look_ahead(self, candidate: Candidate) -> None:
        """Begin what the search asks, and what it is likely to; end what it cannot."""
        if self._can_begin(candidate):  # before it is asked what fits further ahead
            self._begin(candidate, early=False)
        likely, possible = self._likely()
        wanted = {c.digest: c for c in (candidate, *likely)}
        for digest, asked in list(self._under_way.items()):
            if digest not in possible and digest not in wanted:
                self._end(asked)
        for digest, each in wanted.items():
            if digest in self._under_way:
                continue
            if len(self._under_way) == self._lanes.count:
                if digest != candidate.digest:
                    return
                least = min(self._under_way, key=wanted.__contains__)
                self._end(self._under_way[least])
            self._begin(each, early=digest != candidate.digest)

    def _can_begin(self, candidate: Candidate) -> bool:
        asked = self._under_way
        return candidate.digest not in asked and len(asked) < self._lanes.count

    def _likely(self) -> tuple[list[Candidate], set[str]]:
        """Choose the most probable questions, and collect all that are possible."""
        if self._place is None:
            return [], set()
        count = self._lanes.count
        likely = self._place.likely(self._known, _PLACES * count)
        chosen = [question.candidate for question in islice(likely, count)]
        return chosen, self._place.digests(self._known)

    def _known(self, candidate: Candidate) -> Outcome | None:
        verdict = self._memory(candidate) or self._recalled(candidate)
        return verdict.outcome if verdict else None

    def _recalled(self, candidate: Candidate) -> Verdict | None:
        """Fetch what was answered ahead, in an earlier session even."""
        digest = candidate.digest
        if digest not in self._found:
            self._found[digest] = self._ahead.recall(candidate)
        return self._found[digest]

    # --- what is under way

    def _begin(self, candidate: Candidate, *, early: bool) -> None:
        if early:
            self.asked_ahead += 1
            self._ahead.began(candidate)
        pending = self._lanes.begin(candidate)
        self._under_way[candidate.digest] = _Asked(candidate, pending, early)

    def _gather(self) -> None:
        """Keep the answers that are there to questions that were begun early."""
        for digest, asked in list(self._under_way.items()):
            if asked.early and asked.pending.done():
                del self._under_way[digest]
                self._found[digest] = self._kept(asked)

    def _kept(self, asked: _Asked) -> Verdict:
        try:
            verdict = asked.pending.result()
        except Exception as error:  # noqa: BLE001 - asked anew, and raised then
            return Verdict(Outcome.UNRESOLVED, Observation(unresolved=repr(error)))
        seen = verdict.observation
        verdict = replace(verdict, observation=replace(seen, log=seen.log[-LOG_CHARS:]))
        self._ahead.answered(asked.candidate, verdict)
        self._uncounted[asked.candidate.digest] = asked.pending
        return verdict

    def _end(self, asked: _Asked) -> None:
        """End a question that is not asked any more."""
        asked.pending.cancel()
        self._under_way.pop(asked.candidate.digest, None)
        if asked.early:
            self._ahead.withdrawn(asked.candidate)
