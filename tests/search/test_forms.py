"""Two searches in turn: program, then source if the result cannot be printed."""

from __future__ import annotations

from collections.abc import Sequence

from shrinkfx.errors import BudgetExhausted
from shrinkfx.events import Event, Listener, QueryAnswered, StepTaken, ignore_event
from shrinkfx.program.candidate import Candidate
from shrinkfx.search.asker import Asker, Budget
from shrinkfx.search.reducer import Reducer
from shrinkfx.search.staged import READABLE, SOURCE, StagedSearch, in_each_form
from shrinkfx.search.strategy import Strategy, choose
from shrinkfx.strategies.operators import DropNodes
from shrinkfx.testing import Answer, FakeOracle, chain, needs, whole

BUILT_IN = choose(None)
START = whole(chain("x", *(f"n{i}" for i in range(80))))


class DropsOneByOne(DropNodes):
    combines = False


def made(
    oracles: Sequence[FakeOracle],
    budget: Budget,
    *,
    start: Candidate = START,
    strategies: Sequence[Strategy] = BUILT_IN,
    listener: Listener = ignore_event,
) -> StagedSearch:
    askers = [
        Asker(oracle, budget=budget, form=form)
        for oracle, form in zip(oracles, ("program", "source"), strict=True)
    ]
    return in_each_form(
        *(Reducer(start, asker, strategies, listener=listener) for asker in askers)
    )


def printable(search: StagedSearch) -> bool:
    return SOURCE not in search.unconfirmed


def searched(
    program: Answer, source: Answer, strategies: Sequence[Strategy] = BUILT_IN
) -> tuple[StagedSearch, tuple[FakeOracle, FakeOracle]]:
    oracles = (FakeOracle(program), FakeOracle(source))
    search = made(oracles, Budget(), strategies=strategies)
    search.run()
    assert len(search.verdicts()) == sum(len(oracle.asked) for oracle in oracles)
    return search, oracles


def test_source_form_is_queried_early_and_at_the_end() -> None:
    search, (_, source) = searched(needs("n7"), needs("n7"))
    assert printable(search)
    assert search.reducer.best.operators == ("n7",)
    early, late = source.asked
    assert 1 < early.cost[0] < READABLE
    assert late == search.reducer.best


def test_query_events_report_the_size_of_the_smallest_program() -> None:
    told: list[Event] = []
    oracles = FakeOracle(needs("n7")), FakeOracle(needs("n7"))
    made(oracles, Budget(), listener=told.append).run()
    best = START.cost[0]
    for event in told:
        match event:
            case StepTaken(before, after):
                assert before == best
                best = after
            case QueryAnswered():
                assert event.operators == best
    sources = [
        e for e in told if isinstance(e, QueryAnswered) and e.strategy == "source"
    ]
    assert [event.operators for event in sources][-1] == 1
    assert len(sources) == 2


def test_source_search_continues_from_the_last_failing_step() -> None:
    search, (program, _) = searched(needs("n7"), needs("n7", "n9"))
    assert printable(search)
    assert search.reducer.best.operators == ("n7", "n9")
    assert search.reducer.minimal
    steps = [candidate for candidate in program.asked if needs("n7")(candidate)]
    assert search.reducer.history[0] in steps


def test_source_search_goes_back_to_the_early_candidate() -> None:
    search, (_, source) = searched(
        lambda candidate: True,
        lambda candidate: candidate.cost[0] >= READABLE - 1,
        [DropsOneByOne()],
    )
    assert len(source.asked) > READABLE - 1
    early = search.reducer.history[0]
    assert early == source.asked[0]
    assert early.cost[0] == READABLE - 1
    assert START not in source.asked


def test_source_search_gives_up_if_the_input_program_passes() -> None:
    search, (_, source) = searched(needs("n7"), lambda candidate: False)
    assert not printable(search)
    assert search.reducer.best.operators == ("n7",)
    assert START in source.asked


def test_program_and_source_searches_share_one_budget() -> None:
    for checks in range(1, 30, 4):
        oracles = (FakeOracle(needs("n7")), FakeOracle(needs("n7", "n9")))
        search = made(oracles, Budget(checks))
        try:
            search.run()
        except BudgetExhausted:
            assert sum(len(oracle.asked) for oracle in oracles) == checks
        assert needs("n7")(search.reducer.best)


def test_result_is_queried_as_source_though_the_input_program_passes() -> None:
    small = whole(chain("x", *(f"n{i}" for i in range(9))))
    source = FakeOracle(lambda candidate: len(candidate.keep) == 1)
    program = FakeOracle(needs("n7"))
    search = made([program, source], Budget(), start=small)
    search.run()
    assert source.asked == [search.reducer.best]
    assert printable(search)
