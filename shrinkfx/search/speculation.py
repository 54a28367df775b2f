"""Speculation: run the likely next queries of a search in parallel worker slots.

The search itself is sequential: it makes a query, waits for the answer, and makes the
next one. While it waits, the queries that would follow either answer are started, the
most probable first (``forecast``). A query that an answer makes useless is cancelled.

The search gets an answer only when it makes that query. So it is the same search with
any number of worker slots: the same queries in the same order, the same learning from
answers, the same cost. Unused answers are lost if the run is killed.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count, islice
from typing import Protocol, runtime_checkable

from shrinkfx.errors import SpeculationError, StrategyError
from shrinkfx.failure.verdict import (
    ConcurrentQueryError,
    Learner,
    Observation,
    Oracle,
    Outcome,
    Verdict,
)
from shrinkfx.journal.journal import LOG_CHARS
from shrinkfx.program.candidate import Candidate
from shrinkfx.search.search_state import Query, SearchState

_PLACES = 8
"""The highest number of tree nodes to look at, for each worker slot."""


class Pending(Protocol):
    """A running query."""

    def done(self) -> bool: ...

    def result(self) -> Verdict:
        """Wait for the verdict; raise what the oracle raised.

        Raises:
            ConcurrentQueryError: there is no answer, and a parallel query may be why.
        """
        ...

    def cancel(self) -> None:
        """Kill the query's processes; do nothing if it is done."""
        ...

    def count(self) -> None:
        """Add the query's builds to the totals, because the search uses its answer."""
        ...


class WorkerSlots(Protocol):
    """The worker slots: they run queries in parallel.

    A query uses what the oracle has learnt when it begins, and teaches it nothing.
    Every error of a query is raised by its ``result``.

    Attributes:
        count: the number of slots.
    """

    count: int

    def begin(self, candidate: Candidate) -> Pending:
        """Start a query in a free slot."""
        ...

    def wait(self, pending: Collection[Pending]) -> None:
        """Wait until at least one of the queries is done."""
        ...

    def alone(self, candidate: Candidate) -> Verdict:
        """Repeat an undecided query while no other query runs."""
        ...


@runtime_checkable
class Reviewer(Protocol):
    """An oracle whose earlier answers change how it checks."""

    def stands(self, candidate: Candidate, verdict: Verdict) -> bool:
        """Tell whether a speculative verdict is what the oracle would answer now."""
        ...


@dataclass(frozen=True)
class _RunningQuery:
    """A running query.

    Attributes:
        early: whether it is speculative: it began before the search made it.
    """

    candidate: Candidate
    pending: Pending
    early: bool


def _nothing(candidate: Candidate) -> None:
    """Return None: nothing is known of any candidate."""


class SpeculativeOracle:
    """An oracle that runs queries in worker slots, and speculates during a search.

    Attributes:
        asked_ahead: the number of speculative queries.
        of_use: the number of those whose answers the search has used.
    """

    def __init__(self, oracle: Oracle, slots: WorkerSlots) -> None:
        """Create the oracle.

        Args:
            oracle: learns from the verdicts that the search gets; the slots run its
                checks.
            slots: the worker slots.
        """
        self._oracle, self._slots = oracle, slots
        self._under_way: dict[str, _RunningQuery] = {}
        self._stored: dict[str, Verdict] = {}  # not used by the search yet
        self._uncounted: dict[str, Pending] = {}
        self._search: SearchState | None = None
        self._memory: Callable[[Candidate], Verdict | None] = _nothing
        self._place: QueryNode | None = None
        self.asked_ahead = self.of_use = 0

    def follow(
        self, search: SearchState, known: Callable[[Candidate], Verdict | None]
    ) -> None:
        """Start to speculate for a search.

        Args:
            known: returns the verdicts that the search has in memory.
        """
        self._search, self._memory = search, known

    def stop_following(self) -> None:
        """Cancel all running queries, and follow no search."""
        self._search, self._memory, self._place = None, _nothing, None
        running = [a for a in self._under_way.values() if not a.pending.done()]
        for query in running:
            query.pending.cancel()
        self._gather()
        for query in running:
            self._end(query)
        self._under_way.clear()

    def check(self, candidate: Candidate) -> Verdict:
        try:
            verdict = self._await_verdict(candidate)
        except BaseException:
            self.stop_following()
            raise
        self.learn(candidate, verdict)
        return verdict

    def learn(self, candidate: Candidate, verdict: Verdict) -> None:
        """Let the oracle learn from a verdict that the search gets."""
        if isinstance(self._oracle, Learner):
            self._oracle.learn(candidate, verdict)

    # --- the query of the search

    def _await_verdict(self, candidate: Candidate) -> Verdict:
        self._gather()
        self._place = self._find_node(candidate)
        while True:
            if verdict := self._take_speculative_verdict(candidate):
                return verdict
            self._start_queries(candidate)
            self._slots.wait([query.pending for query in self._under_way.values()])
            self._gather()
            query = self._under_way.get(candidate.digest)
            if query and not query.early and query.pending.done():
                del self._under_way[candidate.digest]
                return self._decide(query)

    def _decide(self, query: _RunningQuery) -> Verdict:
        try:
            verdict = query.pending.result()
        except ConcurrentQueryError:
            return self._slots.alone(query.candidate)
        query.pending.count()
        return verdict

    def _take_speculative_verdict(self, candidate: Candidate) -> Verdict | None:
        """Return a speculative verdict, once; None if a (new) check is needed."""
        verdict = self._stored.pop(candidate.digest, None)
        if verdict is None:
            return None
        pending = self._uncounted.pop(candidate.digest, None)
        if not self._stands(candidate, verdict):
            return None
        if pending:  # None if the query raised
            pending.count()
        self.of_use += 1
        return verdict

    def _stands(self, candidate: Candidate, verdict: Verdict) -> bool:
        """Tell whether a speculative verdict is what the oracle would answer now."""
        if verdict.outcome is Outcome.UNRESOLVED:
            return False
        oracle = self._oracle
        return not isinstance(oracle, Reviewer) or oracle.stands(candidate, verdict)

    # --- speculative queries

    def _find_node(self, candidate: Candidate) -> QueryNode | None:
        """Find the tree node of a query; None if the search state has no such query."""
        if self._search is None or self._slots.count == 1:
            return None
        place = self._place
        while place and (question := place.question):
            if question.candidate.digest == candidate.digest:
                return place
            outcome = self._known(question.candidate)
            place = place.child(outcome) if outcome else None
        # The search got another answer: a confirmation refused the candidate, say.
        question = self._search.next_query()
        if question is None or question.candidate.digest != candidate.digest:
            return None
        return QueryNode(self._search.copy_for_speculation())

    def _start_queries(self, candidate: Candidate) -> None:
        """Start the search's query and likely ones; cancel those now impossible."""
        if self._can_begin(candidate):  # first, because building the tree takes time
            self._begin(candidate, early=False)
        likely, possible = self._likely()
        wanted = {c.digest: c for c in (candidate, *likely)}
        for digest, query in list(self._under_way.items()):
            if digest not in possible and digest not in wanted:
                self._end(query)
        for digest, each in wanted.items():
            if digest in self._under_way:
                continue
            if len(self._under_way) == self._slots.count:
                if digest != candidate.digest:
                    return
                least = min(self._under_way, key=wanted.__contains__)
                self._end(self._under_way[least])
            self._begin(each, early=digest != candidate.digest)

    def _can_begin(self, candidate: Candidate) -> bool:
        running = self._under_way
        return candidate.digest not in running and len(running) < self._slots.count

    def _likely(self) -> tuple[list[Candidate], set[str]]:
        """Return the most probable queries, and the digests of all possible ones."""
        if self._place is None:
            return [], set()
        count = self._slots.count
        likely = self._place.likely_queries(self._known, _PLACES * count)
        chosen = [question.candidate for question in islice(likely, count)]
        return chosen, self._place.possible_digests(self._known)

    def _known(self, candidate: Candidate) -> Outcome | None:
        verdict = self._memory(candidate) or self._stored.get(candidate.digest)
        return verdict.outcome if verdict else None

    # --- running queries

    def _begin(self, candidate: Candidate, *, early: bool) -> None:
        self.asked_ahead += early
        pending = self._slots.begin(candidate)
        self._under_way[candidate.digest] = _RunningQuery(candidate, pending, early)

    def _gather(self) -> None:
        """Store the verdicts of the speculative queries that are done."""
        for digest, query in list(self._under_way.items()):
            if query.early and query.pending.done():
                del self._under_way[digest]
                self._stored[digest] = self._store_verdict(query)

    def _store_verdict(self, query: _RunningQuery) -> Verdict:
        try:
            verdict = query.pending.result()
        except Exception as error:  # noqa: BLE001 - asked anew, and raised then
            return Verdict(Outcome.UNRESOLVED, Observation(unresolved=repr(error)))
        seen = verdict.observation
        verdict = replace(verdict, observation=replace(seen, log=seen.log[-LOG_CHARS:]))
        self._uncounted[query.candidate.digest] = query.pending
        return verdict

    def _end(self, query: _RunningQuery) -> None:
        """Cancel a query that is no longer needed."""
        query.pending.cancel()
        self._under_way.pop(query.candidate.digest, None)


# The tree of speculation: the queries after each answer that the search may get.
#
#     Q ── fails ──> Q1 ── fails ──> ...
#      \             \── passes ──> ...
#       \─ passes ─> Q2 ...
#
# The probability of a query is that of the answers that lead to it; a known answer is
# certain. A node of the tree costs as much as a query costs the search itself. It is
# created on demand, once.

Known = Callable[[Candidate], Outcome | None]
"""Returns the known outcome of a candidate, or None."""


class QueryNode:
    """A node of the tree: the search state after certain answers."""

    def __init__(self, search: SearchState) -> None:
        self._search = search
        self._after: dict[Outcome, QueryNode] = {}

    @cached_property
    def question(self) -> Query | None:
        """The query at this node; None if there is none, or it cannot be predicted."""
        try:
            return self._search.next_query()
        except (StrategyError, SpeculationError):  # reported if the search gets there
            return None

    def child(self, outcome: Outcome) -> QueryNode:
        """Return the node after an answer to the query here."""
        if outcome not in self._after:
            search = self._search.copy()
            search.answer(outcome)
            self._after[outcome] = QueryNode(search)
        return self._after[outcome]

    def likely_queries(self, known: Known, places: int) -> Iterator[Query]:
        """Yield unanswered queries, the most probable first, each once.

        Args:
            places: the highest number of nodes to look at.
        """
        seen: set[str] = set()
        numbers = count()
        heap = [(-1.0, next(numbers), self)]
        for _ in range(places):
            if not heap:
                return
            chance, _, place = heapq.heappop(heap)
            if (question := place.question) is None:
                continue
            chances = place._chances(known)
            if len(chances) > 1 and question.candidate.digest not in seen:
                seen.add(question.candidate.digest)
                yield question
            for outcome, each in chances.items():
                after = chance * each, next(numbers), place.child(outcome)
                heapq.heappush(heap, after)

    def _chances(self, known: Known) -> dict[Outcome, float]:
        """Return the probability of each answer to the query here."""
        assert self.question is not None
        if (outcome := known(self.question.candidate)) is not None:
            return {outcome: 1.0}
        fails = self._search.chance()
        return {Outcome.REPRODUCED: fails, Outcome.PASSED: 1 - fails}

    def possible_digests(self, known: Known) -> set[str]:
        """Collect the digests of queries in existing nodes that are still possible."""
        digests = set()
        nodes = [self]
        while nodes:
            node = nodes.pop()
            if "question" not in node.__dict__ or node.question is None:
                continue
            digests.add(node.question.candidate.digest)
            outcome = known(node.question.candidate)
            possible = [outcome] if outcome else list(node._after)
            nodes += [node._after[o] for o in possible if o in node._after]
        return digests
