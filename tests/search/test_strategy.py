"""Finding strategies, collecting their edits, and naming the law they break."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any, cast

import pytest

from shrinkfx.errors import StrategyError
from shrinkfx.program.edits import Bypass, Drop, Edit, Merge, Replace
from shrinkfx.program.view import View
from shrinkfx.search.strategy import (
    DEFAULT_ORDER,
    Strategy,
    available,
    choose,
    collect_proposals,
)
from shrinkfx.strategies.operators import DropNodes
from shrinkfx.testing import chain, check_strategy, whole

CANDIDATE = whole(chain("x", "a", "b", "c"))


class Vice:
    """A strategy that proposes what a subclass makes it propose."""

    name = "vice"
    combines = True

    def propose(self, view: View) -> Iterator[Edit]:
        yield from ()


class ProposesForever(Vice):
    def propose(self, view: View) -> Iterator[Edit]:
        while True:
            yield Drop(frozenset(view.operators[:1]))


class MutatesItsCandidate(Vice):
    def propose(self, view: View) -> Iterator[Edit]:
        cast(dict[str, str], view._candidate.bypass)["a"] = "x"
        yield Drop(frozenset({"a"}))


class ProposesNonsense(Vice):
    def propose(self, view: View) -> Iterator[Edit]:
        yield cast(Edit, ("drop", view.operators[0]))


class ProposesWhatRaises(Vice):
    def propose(self, view: View) -> Iterator[Edit]:
        yield Drop(cast(Any, list(view.operators[:1])))


class Raises(Vice):
    def propose(self, view: View) -> Iterator[Edit]:
        yield Drop(frozenset({"a"}))
        raise KeyError("b")


class ChangesItsMind(Vice):
    def __init__(self) -> None:
        self._calls = count()

    def propose(self, view: View) -> Iterator[Edit]:
        yield Drop(frozenset({view.operators[next(self._calls) % 2]}))


class IsNotLazy(Vice):
    def propose(self, view: View) -> Iterator[Edit]:
        return cast(Iterator[Edit], [Drop(frozenset({"a"}))])


class ProposesWhatDoesNotFit(Vice):
    def propose(self, view: View) -> Iterator[Edit]:
        yield Drop(frozenset({"nowhere"}))
        yield Drop(frozenset(view.operators))
        yield Bypass("a", "nowhere")
        yield Bypass("a", "c")
        yield Replace("a", "c")
        yield Merge(frozenset({"x", "a"}))


@pytest.mark.parametrize(
    ("strategy", "message"),
    [
        (ChangesItsMind(), "'vice' breaks law 1 of .*: it proposed .* then"),
        (MutatesItsCandidate(), "'vice' breaks law 2 of .*: it changed"),
        (ProposesNonsense(), r"'vice' breaks law 3 of .*: it proposed \('drop', 'a'\)"),
        (ProposesWhatRaises(), "'vice' breaks law 3 of .* raises TypeError"),
        (IsNotLazy(), "'vice' breaks law 4 of .*: propose is no generator"),
        (ProposesForever(), "'vice' breaks law 6 of .*: it proposed more than 400"),
        (Raises(), r"'vice' raised KeyError\('b'\)"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_check_strategy_names_the_broken_law(strategy: Strategy, message: str) -> None:
    candidate = whole(chain("x", "a", "b", "c"))
    with pytest.raises(StrategyError, match=message):
        check_strategy(strategy, candidate)


@pytest.mark.parametrize("strategy", [Vice(), ProposesWhatDoesNotFit(), DropNodes()])
def test_check_strategy_accepts_a_strategy_that_keeps_the_laws(
    strategy: Strategy,
) -> None:
    check_strategy(strategy, CANDIDATE)


def test_proposals_are_collected_up_to_the_allowed_number() -> None:
    class ProposesFourHundred(Vice):
        def propose(self, view: View) -> Iterator[Edit]:
            for _ in range(400):
                yield Drop(frozenset({"a"}))

    assert len(collect_proposals(ProposesFourHundred(), CANDIDATE)) == 400


def test_strategies_are_found_in_their_default_order() -> None:
    assert tuple(available())[: len(DEFAULT_ORDER)] == DEFAULT_ORDER
    assert [strategy.name for strategy in choose(None)] == list(available())


def test_error_for_an_unknown_strategy_suggests_similar_names() -> None:
    with pytest.raises(StrategyError, match="did you mean drop_nodes"):
        choose(["drop_node"])
