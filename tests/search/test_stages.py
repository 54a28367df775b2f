"""Searches in stages, and confirmations."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from shrinkfx.errors import BudgetExhausted
from shrinkfx.events import Event, Listener, QueryAnswered, StepTaken, ignore_event
from shrinkfx.failure.verdict import Oracle, Outcome, Verdict
from shrinkfx.journal.journal import Journal
from shrinkfx.program.apply import apply
from shrinkfx.program.candidate import Candidate
from shrinkfx.program.edits import Drop, Rewrite
from shrinkfx.program.listing.changes import Write
from shrinkfx.program.listing.printed_program import Kind, LeafKind
from shrinkfx.program.view import View
from shrinkfx.protocol.choices import Build
from shrinkfx.search.asker import Asker, Budget, Confirmation
from shrinkfx.search.reducer import Reducer
from shrinkfx.search.staged import (
    READABLE,
    SOURCE,
    Stage,
    StagedSearch,
    UnstagedSearch,
    in_each_build,
    in_each_form,
    select_near_or_known,
)
from shrinkfx.search.strategy import Strategy, choose
from shrinkfx.strategies.operators import DropNodes
from shrinkfx.testing import Answer, FakeOracle, chain, listed, listing, needs, whole

# Stages of a search, whatever they are: each confirms the one before, or goes on.


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


# Two searches in turn: program, then source if the result cannot be printed.


BUILT_IN = choose(None)
START_FORMS = whole(chain("x", *(f"n{i}" for i in range(80))))


def made(
    oracles: Sequence[FakeOracle],
    budget: Budget,
    *,
    start: Candidate = START_FORMS,
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
    best = START_FORMS.cost[0]
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
    assert START_FORMS not in source.asked


def test_source_search_gives_up_if_the_input_program_passes() -> None:
    search, (_, source) = searched(needs("n7"), lambda candidate: False)
    assert not printable(search)
    assert search.reducer.best.operators == ("n7",)
    assert START_FORMS in source.asked


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


# Two searches in turn: the fast build, then the stock one if that says otherwise.


START_BUILDS = whole(chain("x", *(f"n{i}" for i in range(40))))


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
            return Reducer(START_BUILDS, asker, self._strategies)

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


# Dear questions about a result, and the way back where the answer is no.


START_JUDGES = whole(chain("x", *(f"n{i}" for i in range(40))))
Fails = Callable[[Candidate], bool]


@dataclass(frozen=True)
class Strict:
    """An oracle whose questions are those of a judge."""

    fails: Fails
    asked: list[Candidate]

    def check(self, candidate: Candidate) -> Verdict:
        self.asked.append(candidate)
        outcome = Outcome.REPRODUCED if self.fails(candidate) else Outcome.PASSED
        return Verdict(outcome)


class JudgesSearched:
    """A finished search, and judges for what it has found."""

    def __init__(
        self,
        cheap: Answer,
        journal: Journal | None = None,
        *,
        one_by_one: bool = False,
        checks: int | None = None,
    ) -> None:
        self.program, self.source = FakeOracle(cheap), FakeOracle(cheap)
        self.journal = journal or Journal()
        self.events: list[Event] = []
        self.judged: list[Candidate] = []
        budget = Budget(checks)
        strategies = [DropsOneByOne()] if one_by_one else choose(None)

        def made(oracle: Oracle, form: str) -> Reducer:
            asker = Asker(oracle, budget=budget, journal=self.journal, form=form)
            return Reducer(START_JUDGES, asker, strategies, listener=self.events.append)

        program, source = made(self.program, "program"), made(self.source, "source")
        self.search = in_each_form(program, source)
        self.search.run()

    def judge(self, fails: Fails, name: str = "repro") -> Confirmation:
        oracle = Strict(fails, self.judged)
        asker = Asker(oracle, journal=self.journal, build=name, again=True)
        return Confirmation(name, asker, f"no {name}")

    def go_on(self, fails: Fails) -> None:
        self.search.confirm(self.judge(fails))
        self.search.continue_search()

    @property
    def best(self) -> Candidate:
        return self.search.reducer.best

    @property
    def asked(self) -> int:
        return len(self.program.asked) + len(self.source.asked)


def test_confirmed_result_costs_one_query() -> None:
    searched = JudgesSearched(needs("n7"))
    asked, best = searched.asked, searched.best
    assert searched.search.confirm(searched.judge(needs("n7")))
    searched.search.continue_search()
    assert (searched.judged, searched.best) == ([best], best)
    assert searched.asked == asked


def test_search_goes_back_and_continues_if_the_result_is_not_confirmed() -> None:
    searched = JudgesSearched(needs("n7"))
    assert searched.best.keep == {"n7"}
    assert searched.search.confirm(searched.judge(needs("n7", "n9")))
    assert needs("n7", "n9")(searched.best)
    searched.search.continue_search()
    assert searched.best.operators == ("n7", "n9")
    assert searched.search.reducer.minimal
    judged = [candidate.digest for candidate in searched.judged]
    assert len(set(judged)) == len(judged)
    assert len(searched.search.verdicts()) == searched.asked


def test_unconfirmed_candidate_counts_as_passed_and_is_no_step() -> None:
    searched = JudgesSearched(needs("n7"))
    seen = len(searched.events)
    searched.search.confirm(searched.judge(needs("n7", "n9")))
    searched.search.continue_search()
    for event in searched.events[seen:]:
        if isinstance(event, QueryAnswered):
            told = event.outcome
        elif isinstance(event, StepTaken):
            assert told is Outcome.REPRODUCED
    refused = [v for v in searched.search.verdicts() if v.observation.stopped]
    assert refused
    assert {v.outcome for v in refused} == {Outcome.PASSED}
    assert {v.observation.stopped for v in refused} == {"no repro"}


def test_search_goes_back_in_growing_steps_to_the_input_program() -> None:
    searched = JudgesSearched(needs("n7"), one_by_one=True)
    history = searched.search.history
    assert len(history) == 40
    assert searched.search.confirm(searched.judge(lambda c: c.cost[0] == 40))
    assert searched.best == START_JUDGES
    assert [c.cost[0] for c in searched.judged] == [1, 2, 3, 5, 9, 17, 33, 40]


def test_result_is_kept_if_the_input_program_is_not_confirmed() -> None:
    searched = JudgesSearched(needs("n7"))
    best, asked = searched.best, searched.asked
    assert not searched.search.confirm(searched.judge(lambda _: False))
    assert searched.judged[-1] == START_JUDGES
    searched.search.continue_search()
    assert (searched.best, searched.asked) == (best, asked)
    assert searched.search.reducer.minimal


def test_second_confirmation_keeps_operators_required_by_the_first() -> None:
    searched = JudgesSearched(needs("n7"), one_by_one=True)
    searched.search.confirm(searched.judge(needs("n7", "n9"), "plain"))
    searched.search.continue_search()
    assert searched.search.confirm(searched.judge(needs("n7", "n11"), "repro"))
    searched.search.continue_search()
    assert searched.best.operators == ("n7", "n9", "n11")


class Killed(Exception):
    """Stands for a kill: nothing is answered any more."""


def test_search_killed_during_confirmation_resumes_to_the_same_result(
    tmp_path: Path,
) -> None:
    unbroken = JudgesSearched(needs("n7"))
    unbroken.go_on(needs("n7", "n9"))
    for moment in range(len(unbroken.judged)):
        path = tmp_path / f"{moment}.sqlite"
        with closing(Journal(path)) as journal:
            first = JudgesSearched(needs("n7"), journal)

            def fails(
                candidate: Candidate,
                first: JudgesSearched = first,
                moment: int = moment,
            ) -> bool:
                if len(first.judged) > moment:
                    raise Killed
                return needs("n7", "n9")(candidate)

            with pytest.raises(Killed):
                first.go_on(fails)
        with closing(Journal(path)) as journal:
            again = JudgesSearched(needs("n7"), journal)
            again.go_on(needs("n7", "n9"))
        assert again.best == unbroken.best
        assert again.search.verdicts() == unbroken.search.verdicts()
        assert again.judged == unbroken.judged[moment:]


def test_oracle_can_be_queried_without_confirmations() -> None:
    searched = JudgesSearched(needs("n7"))
    searched.go_on(needs("n7", "n9"))
    reducer, judged = searched.search.reducer, list(searched.judged)
    without = apply(START_JUDGES, [Drop(frozenset({"n9"}))])
    assert reducer.ask("ablation", without, judged=False).reproduced
    assert searched.judged == judged
    assert not reducer.ask("ablation", without).reproduced
    assert searched.judged == [*judged, without]
    assert reducer.ask("ablation", without, judged=False).reproduced
    assert not reducer.asker.has_reproduced(without)


# A search that judges alone confirm: of listings, say.


ADDED = """
add = torch.ops.aten.add.Tensor(x, 17, alpha=3)
mul = torch.ops.aten.mul.Tensor(add, 25)
return mul
"""


class Zeros:
    """Write each number as 0, one by one."""

    name = "zeros"
    combines = False
    kind = Kind.ARGUMENTS

    def propose(self, view: View) -> Iterator[Rewrite]:
        for block, line in view.listing.operators():
            for leaf in line.leaves:
                if leaf.kind is LeafKind.NUMBER and leaf.text != "0":
                    yield Rewrite((Write(block.name, line.name, leaf.number, "0"),))


def text_of(candidate: Candidate) -> str:
    assert candidate.listing is not None
    return "\n".join(line.line() for line in candidate.listing.main.statements)


def test_printed_program_search_goes_back_if_the_result_is_refused() -> None:
    cheap = FakeOracle(lambda candidate: "mul" in text_of(candidate))
    reducer = Reducer(listed(listing(ADDED)), Asker(cheap), [Zeros()])
    search = UnstagedSearch(reducer)
    search.run()
    assert not search.is_open
    assert "17" not in text_of(reducer.best)
    assert search.reducers == [search.reducer] == [reducer]
    steps = len(search.history)

    dear = FakeOracle(lambda candidate: "17" in text_of(candidate))
    judge = Confirmation("strict", Asker(dear), "it passes")
    assert search.confirm(judge)
    search.continue_search()
    assert "17" in text_of(reducer.best)
    assert steps > 1
    assert search.unconfirmed == set()
    assert all("17" in text_of(c) for c in reducer.history)


def test_printed_program_search_keeps_the_result_if_none_is_confirmed() -> None:
    asker = Asker(FakeOracle(lambda _: True))
    reducer = Reducer(listed(listing(ADDED)), asker, [Zeros()])
    search = UnstagedSearch(reducer)
    search.find()
    best = reducer.best
    refuses = FakeOracle(lambda _: False)
    assert not search.confirm(Confirmation("strict", Asker(refuses), "it passes"))
    assert reducer.best is best
    assert len(refuses.asked) <= len(search.history)
