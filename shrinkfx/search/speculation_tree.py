"""The tree of speculation: the queries after each answer that the search may get.

    Q ── fails ──> Q1 ── fails ──> ...
     \\             \\── passes ──> ...
      \\─ passes ─> Q2 ...

The probability of a query is that of the answers that lead to it; a known answer is
certain. A node of the tree costs as much as a query costs the search itself. It is
created on demand, once.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from functools import cached_property
from itertools import count

from shrinkfx.errors import SpeculationError, StrategyError
from shrinkfx.failure.verdict import Outcome
from shrinkfx.program.candidate import Candidate
from shrinkfx.search.search_state import Query, SearchState

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
