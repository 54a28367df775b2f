"""Strategies and oracles named for what they do wrong."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import cast

import pytest

from shrinkfx.errors import StrategyError
from shrinkfx.failure.verdict import Outcome
from shrinkfx.program.candidate import Candidate
from shrinkfx.program.edits import Bypass, Drop, Edit, Merge, Replace
from shrinkfx.program.view import View
from shrinkfx.search.asker import Asker
from shrinkfx.search.reducer import Reducer
from shrinkfx.search.strategy import Strategy, choose
from shrinkfx.strategies.operators import DropNodes
from shrinkfx.testing import FakeOracle, chain, needs, whole

START = whole(chain("x", *(f"n{i}" for i in range(20))))


class ProposesNothing:
    name = "vice"
    combines = True

    def propose(self, view: View) -> Iterator[Edit]:
        yield from ()


class ProposesForever(ProposesNothing):
    def propose(self, view: View) -> Iterator[Edit]:
        while True:
            yield Drop(frozenset({"n0"}))


class MutatesItsCandidate(ProposesNothing):
    def propose(self, view: View) -> Iterator[Edit]:
        cast(dict[str, str], view._candidate.bypass)["n3"] = "x"
        yield Drop(frozenset({"n0"}))


class ProposesWhatDoesNotFit(ProposesNothing):
    def propose(self, view: View) -> Iterator[Edit]:
        yield Drop(frozenset({"nowhere"}))
        yield Drop(frozenset(view.operators))
        yield Bypass("nowhere", "x")
        yield Bypass("n1", "nowhere")
        yield Bypass("n1", "n2")
        yield Replace("nowhere", "x")
        yield Replace("n1", "n2")
        yield Merge(frozenset({"x", "n1"}))
        yield Merge(frozenset({"x"}))


class RepeatsItself(ProposesNothing):
    def propose(self, view: View) -> Iterator[Edit]:
        for _ in range(50):
            yield Drop(frozenset({"n0"}))


class RaisesHalfWay(ProposesNothing):
    def propose(self, view: View) -> Iterator[Edit]:
        yield Drop(frozenset({"n0"}))
        raise RuntimeError("lost")


class FlakyOracle(FakeOracle):
    """Deny one failure in so many."""

    def __init__(self, seed: int) -> None:
        dice = random.Random(seed)
        super().__init__(lambda c: needs("n5", "n11")(c) and dice.random() < 0.7)


class DifferentFailureOracle(FakeOracle):
    """Meet another failure as soon as anything is missing."""

    def __init__(self) -> None:
        super().__init__(lambda candidate: Outcome.DIFFERENT)


@pytest.mark.parametrize(
    "strategy", [ProposesForever(), MutatesItsCandidate(), RaisesHalfWay()]
)
def test_reducer_stops_at_a_strategy_that_breaks_the_laws(strategy: Strategy) -> None:
    oracle = FakeOracle(needs("n5"))
    start = Candidate.from_json(START.skeleton, START.to_json())
    with pytest.raises(StrategyError, match="strategy 'vice'"):
        Reducer(start, Asker(oracle), [strategy]).run()
    assert oracle.asked == []


@pytest.mark.parametrize("strategy", [ProposesNothing(), ProposesWhatDoesNotFit()])
def test_reducer_skips_a_strategy_without_valid_edits(strategy: Strategy) -> None:
    oracle = FakeOracle(needs("n5"))
    assert Reducer(START, Asker(oracle), [strategy]).run() == START
    assert oracle.asked == []
    assert Reducer(START, Asker(oracle), [strategy, DropNodes()]).run().operators == (
        "n5",
    )


def test_reducer_queries_a_repeated_proposal_once() -> None:
    oracle = FakeOracle(lambda candidate: False)
    Reducer(START, Asker(oracle), [RepeatsItself()]).run()
    assert len(oracle.asked) == 1


@pytest.mark.parametrize("seed", range(5))
def test_result_has_failed_at_least_once_if_verdicts_are_flaky(
    seed: int,
) -> None:
    oracle = FlakyOracle(seed)
    reducer = Reducer(START, Asker(oracle), choose(None))
    best = reducer.run()
    assert needs("n5", "n11")(best)
    assert best == START or reducer.asker.has_reproduced(best)


def test_reducer_never_accepts_a_different_failure() -> None:
    oracle = DifferentFailureOracle()
    reducer = Reducer(START, Asker(oracle), choose(None))
    assert reducer.run() == START
    assert reducer.minimal
    assert {verdict.outcome for verdict in reducer.asker.verdicts()} == {
        Outcome.DIFFERENT
    }
