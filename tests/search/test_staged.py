"""Stages of a search, whatever they are: each confirms the one before, or goes on."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from shrinkfx.program.candidate import Candidate
from shrinkfx.search.asker import Asker
from shrinkfx.search.reducer import Reducer
from shrinkfx.search.staged import Stage, StagedSearch, select_near_or_known
from shrinkfx.strategies.operators import DropNodes
from shrinkfx.testing import Answer, FakeOracle, chain, needs, whole

START = whole(chain("x", *(f"n{i}" for i in range(20))))


class DropsOneByOne(DropNodes):
    combines = False


def reducer(answer: Answer) -> Reducer:
    return Reducer(START, Asker(FakeOracle(answer)), [DropsOneByOne()])


def staged(
    first: Reducer, *stages: Stage, note: Callable[[str], None] = print
) -> StagedSearch:
    """Put one stage after the other."""
    stage, *others = stages
    search = StagedSearch(first, stage, note)
    for other in others:
        search = StagedSearch(search, other, note)
    return search


def run_until_below(operators: int, first: Reducer) -> Callable[[], bool]:
    """Search until so few are left, and tell whether that has been."""

    def is_due(best: Candidate) -> bool:
        return best.cost[0] < operators

    return lambda: is_due(first.run(is_due))


def count_queries(search: Reducer) -> int:
    return search.asker.query_count


def test_each_stage_confirms_the_result_with_one_query() -> None:
    first, *others = (reducer(needs("n7")) for _ in range(3))
    search = staged(first, *(Stage("stage", other) for other in others))
    search.run()
    assert search.reducer is first
    assert first.best.operators == ("n7",)
    assert [count_queries(other) for other in others] == [1, 1]
    assert search.unconfirmed == set()


def test_result_satisfies_the_strictest_stage() -> None:
    demands = [["n7"], ["n7", "n9"], ["n7", "n9", "n11"]]
    first, second, third = (reducer(needs(*names)) for names in demands)
    notes: list[str] = []
    stages = [
        Stage("second", second, going_on="on to the second"),
        Stage("third", third, going_on="on to the third"),
    ]
    search = staged(first, *stages, note=notes.append)
    search.run()
    assert search.reducer is third
    assert search.reducer.best.operators == ("n7", "n9", "n11")
    assert notes == ["on to the second", "on to the third"]
    assert search.history == [*first.history, *second.history, *third.history]


@pytest.mark.parametrize("goes_on", [False, True])
def test_stage_that_refuses_every_candidate_is_noted_and_skipped(goes_on: bool) -> None:
    first, never = reducer(needs("n7")), reducer(lambda candidate: False)
    last = reducer(needs("n7", "n9") if goes_on else needs("n7"))
    notes: list[str] = []
    search = staged(
        first,
        Stage("never", never, giving_up="it never fails so"),
        Stage("last", last),
        note=notes.append,
    )
    search.run()
    assert notes == ["it never fails so"]
    assert search.reducer is (last if goes_on else first)
    # Another result is none that it was asked about.
    assert search.unconfirmed == (set() if goes_on else {"never"})


def test_stage_may_refuse_an_early_candidate_and_confirm_the_result() -> None:
    first, strict = reducer(needs("n7")), reducer(lambda c: len(c.keep) <= 5)
    early = run_until_below(15, first)
    search = StagedSearch(first, Stage("strict", strict, early=early))
    search.run()
    assert search.reducer is first
    assert first.best.operators == ("n7",)
    assert search.unconfirmed == set()


def test_staged_search_may_be_a_stage() -> None:
    loose, strict = (
        StagedSearch(reducer(needs(*names)), Stage("inner", reducer(needs("n7"))))
        for names in (["n7"], ["n7", "n9"])
    )
    search = StagedSearch(loose, Stage("outer", strict))
    search.run()
    assert search.reducer is strict.reducer
    assert search.reducer.best.operators == ("n7", "n9")
    assert len(search.reducers) == 4
    assert len(search.verdicts()) == sum(map(count_queries, search.reducers))


def test_steps_back_are_near_then_known_then_the_input_program() -> None:
    steps = [whole(chain("x", *(f"n{i}" for i in range(n)))) for n in range(12, 0, -1)]
    known = {steps[2].digest, steps[9].digest}
    back = select_near_or_known(steps, lambda candidate: candidate.digest in known)
    assert [len(c.keep) for c in back] == [2, 3, 4, 5, 6, 10, 12]
    assert select_near_or_known(steps[:1], lambda _: False) == steps[:1]
