"""A search with several jobs, where each question takes one round.

Nothing is compiled: the programs are those of ``synthetic.py``.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import dataclass

from synthetic import DELETING, Case

from shrinkfx.failure.verdict import Oracle, Verdict
from shrinkfx.program.candidate import Candidate
from shrinkfx.search.asker import Asker
from shrinkfx.search.reducer import Reducer
from shrinkfx.search.speculation import Pending, SpeculativeOracle
from shrinkfx.search.strategy import choose
from shrinkfx.testing import FakeOracle, whole


class Asked:
    """A question that takes a round."""

    def __init__(self, candidate: Candidate, oracle: Oracle) -> None:
        self._candidate, self._oracle = candidate, oracle
        self._is_done = self.is_cancelled = False

    def finish(self) -> None:
        self._is_done = True

    def done(self) -> bool:
        return self._is_done

    def result(self) -> Verdict:
        assert self._is_done
        assert not self.is_cancelled
        return self._oracle.check(self._candidate)

    def cancel(self) -> None:
        self.is_cancelled = not self._is_done

    def count(self) -> None:
        """Nothing is counted here: a round is one, whatever comes of it."""


class Rounds:
    """Lanes that all go at the same pace.

    Attributes:
        rounds: waited for so far.
        begun: every question.
    """

    def __init__(self, oracle: Oracle, count: int) -> None:
        self._oracle, self.count = oracle, count
        self.rounds = 0
        self.begun: list[Asked] = []

    def begin(self, candidate: Candidate) -> Pending:
        self.begun.append(Asked(candidate, self._oracle))
        return self.begun[-1]

    def wait(self, pending: Collection[Pending]) -> None:
        self.rounds += 1
        for each in pending:
            assert isinstance(each, Asked)
            each.finish()

    def alone(self, candidate: Candidate) -> Verdict:
        self.rounds += 1
        return self._oracle.check(candidate)


@dataclass(frozen=True)
class Run:
    """A search with some jobs.

    Attributes:
        answers: that it was given.
        asked: questions, with those that it was not given the answers of.
        cpu_ms: its own time for an answer that it was given.
        result: the candidates it has accepted, by their digests.
    """

    jobs: int
    rounds: int
    answers: int
    asked: int
    cpu_ms: float
    result: list[str]


def search(case: Case, jobs: int) -> Run:
    """Reduce a case as shrinkfx does, with so many jobs."""
    oracle = FakeOracle(case.answer)
    lanes = Rounds(oracle, jobs)
    began = time.process_time()
    asker = Asker(SpeculativeOracle(oracle, lanes))
    start, strategies = whole(case.program), choose(DELETING)
    reducer = Reducer(start, asker, strategies, suspects=case.suspects)
    reducer.run()
    spent = time.process_time() - began
    answers = asker.query_count
    result = [candidate.digest for candidate in reducer.history]
    each = 1e3 * spent / answers
    return Run(jobs, lanes.rounds, answers, len(lanes.begun), each, result)
