"""What a search will ask after the answers that it may get: a tree of its courses.

    Q ── fails ──> Q1 ── fails ──> ...
     \\             \\── passes ──> ...
      \\─ passes ─> Q2 ...

A question is as probable as the answers that lead to it: by the odds, and certain where
they are known. Each place of the tree costs what a question costs the search itself,
and is made once, when somebody wants to know of it.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from functools import cached_property
from itertools import count

from shrinkfx.errors import StrategyError, Unforeseen
from shrinkfx.failure.verdict import Outcome
from shrinkfx.program.candidate import Candidate
from shrinkfx.search.course import Course, Question

Known = Callable[[Candidate], Outcome | None]
"""Tells an answer that is there; None where there is none."""


class Place:
    """A course, after certain answers."""

    def __init__(self, course: Course) -> None:
        self._course = course
        self._after: dict[Outcome, Place] = {}

    @cached_property
    def question(self) -> Question | None:
        """What is asked here; None where the search is over, or cannot be foreseen."""
        try:
            return self._course.question()
        except (StrategyError, Unforeseen):  # it is told if the search gets there
            return None

    def after(self, outcome: Outcome) -> Place:
        """Go on by an answer to the question here."""
        if outcome not in self._after:
            course = self._course.copy()
            course.answer(outcome)
            self._after[outcome] = Place(course)
        return self._after[outcome]

    def likely(self, known: Known, places: int) -> Iterator[Question]:
        """Choose questions that have no answer, the most probable first, each once.

        Args:
            places: to look at, at most.
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
                after = chance * each, next(numbers), place.after(outcome)
                heapq.heappush(heap, after)

    def _chances(self, known: Known) -> dict[Outcome, float]:
        """Tell how likely the answers to the question here are."""
        assert self.question is not None
        if (outcome := known(self.question.candidate)) is not None:
            return {outcome: 1.0}
        fails = self._course.chance()
        return {Outcome.REPRODUCED: fails, Outcome.PASSED: 1 - fails}

    def digests(self, known: Known) -> set[str]:
        """Collect what may still be asked about, as far as anybody has looked."""
        found = set()
        places = [self]
        while places:
            place = places.pop()
            if "question" not in place.__dict__ or place.question is None:
                continue
            found.add(place.question.candidate.digest)
            outcome = known(place.question.candidate)
            possible = [outcome] if outcome else list(place._after)
            places += [place._after[o] for o in possible if o in place._after]
        return found
