"""Two searches in turn: the fast build, then the stock one if that says otherwise."""

from __future__ import annotations

import pytest

from shrinkfx.errors import BudgetExhausted
from shrinkfx.failure.verdict import Oracle
from shrinkfx.program.candidate import Candidate
from shrinkfx.protocol.choices import Build
from shrinkfx.search.asker import Asker, Budget
from shrinkfx.search.reducer import Reducer
from shrinkfx.search.staged import StagedSearch, in_each_build, in_each_form
from shrinkfx.search.strategy import choose
from shrinkfx.strategies.operators import DropNodes
from shrinkfx.testing import Answer, FakeOracle, chain, needs, whole

START = whole(chain("x", *(f"n{i}" for i in range(40))))


class DropsOneByOne(DropNodes):
    combines = False


class Searched:
    """A search whose builds answer as two predicates say."""

    def __init__(
        self,
        fast: Answer,
        stock: Answer,
        *,
        slowly: str = "",
        checks: int | None = None,
    ) -> None:
        self.oracles = {
            Build.FAST: (FakeOracle(fast), FakeOracle(fast)),
            Build.STOCK: (FakeOracle(stock), FakeOracle(stock)),
        }
        self.notes: list[str] = []
        self._strategies = [DropsOneByOne()] if slowly else choose(None)
        self._budget = Budget(checks)
        self.search = in_each_build(
            self.built_as(Build.FAST), self.built_as(Build.STOCK), self.notes.append
        )

    def built_as(self, build: Build) -> StagedSearch:
        def made(oracle: Oracle, form: str) -> Reducer:
            asker = Asker(oracle, budget=self._budget, form=form, build=build)
            return Reducer(START, asker, self._strategies)

        program, source = self.oracles[build]
        return in_each_form(made(program, "program"), made(source, "source"))

    @property
    def build(self) -> str:
        """How the search that holds the result builds."""
        return self.search.reducer.asker.build

    def run(self) -> StagedSearch:
        self.search.run()
        asked = sum(len(o.asked) for pair in self.oracles.values() for o in pair)
        assert len(self.search.verdicts()) == asked
        return self.search

    def asked(self, build: Build) -> list[Candidate]:
        return [c for oracle in self.oracles[build] for c in oracle.asked]


def test_fast_build_result_is_confirmed_with_one_stock_build_query() -> None:
    searched = Searched(needs("n7"), needs("n7"))
    search = searched.run()
    assert searched.build == Build.FAST
    assert search.reducer.best.operators == ("n7",)
    assert search.reducer.minimal
    assert searched.asked(Build.STOCK) == [search.reducer.best]
    assert searched.notes == []


def test_search_continues_with_the_stock_build_if_the_result_passes() -> None:
    searched = Searched(needs("n7"), needs("n7", "n9"))
    search = searched.run()
    assert searched.build == Build.STOCK
    assert search.reducer.best.operators == ("n7", "n9")
    assert search.reducer.minimal
    (note,) = searched.notes
    assert "stock build" in note
    # What the fast build has said of a candidate is no answer of the stock one.
    both = {c.digest for c in searched.asked(Build.FAST)}
    assert both & {c.digest for c in searched.asked(Build.STOCK)}


def test_search_goes_back_to_a_near_step_that_fails_in_the_stock_build() -> None:
    searched = Searched(needs("n7"), lambda c: c.cost[0] >= 6, slowly="one by one")
    search = searched.run()
    assert search.reducer.best.cost[0] == 6
    start = search.reducer.history[0]
    assert 6 <= start.cost[0] <= 12
    assert len(searched.asked(Build.STOCK)) < 30


def test_result_is_kept_with_a_warning_if_only_the_fast_build_fails() -> None:
    searched = Searched(needs("n7"), lambda candidate: False)
    search = searched.run()
    assert searched.build == Build.FAST
    assert search.reducer.best.operators == ("n7",)
    (note,) = searched.notes
    assert note.startswith("warning: ")


def test_budget_limits_the_fast_and_the_stock_search() -> None:
    free = Searched(needs("n7"), needs("n7", "n9"))
    for checks in range(1, len(free.run().verdicts())):
        searched = Searched(needs("n7"), needs("n7", "n9"), checks=checks)
        with pytest.raises(BudgetExhausted):
            searched.run()
        assert len(searched.search.verdicts()) == checks
        assert needs("n7")(searched.search.reducer.best)
