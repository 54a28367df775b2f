"""Dear questions about a result, and the way back where the answer is no."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from shrinkfx.events import Event, QueryAnswered, StepTaken
from shrinkfx.failure.verdict import Oracle, Outcome, Verdict
from shrinkfx.journal.journal import Journal
from shrinkfx.program.apply import apply
from shrinkfx.program.candidate import Candidate
from shrinkfx.program.edits import Drop
from shrinkfx.search.asker import Asker, Budget, Confirmation
from shrinkfx.search.reducer import Reducer
from shrinkfx.search.staged import in_each_form
from shrinkfx.search.strategy import choose
from shrinkfx.strategies.operators import DropNodes
from shrinkfx.testing import Answer, FakeOracle, chain, needs, whole

START = whole(chain("x", *(f"n{i}" for i in range(40))))
Fails = Callable[[Candidate], bool]


class DropsOneByOne(DropNodes):
    combines = False


@dataclass(frozen=True)
class Strict:
    """An oracle whose questions are those of a judge."""

    fails: Fails
    asked: list[Candidate]

    def check(self, candidate: Candidate) -> Verdict:
        self.asked.append(candidate)
        outcome = Outcome.REPRODUCED if self.fails(candidate) else Outcome.PASSED
        return Verdict(outcome)


class Searched:
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
            return Reducer(START, asker, strategies, listener=self.events.append)

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
    searched = Searched(needs("n7"))
    asked, best = searched.asked, searched.best
    assert searched.search.confirm(searched.judge(needs("n7")))
    searched.search.continue_search()
    assert (searched.judged, searched.best) == ([best], best)
    assert searched.asked == asked


def test_search_goes_back_and_continues_if_the_result_is_not_confirmed() -> None:
    searched = Searched(needs("n7"))
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
    searched = Searched(needs("n7"))
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
    searched = Searched(needs("n7"), one_by_one=True)
    history = searched.search.history
    assert len(history) == 40
    assert searched.search.confirm(searched.judge(lambda c: c.cost[0] == 40))
    assert searched.best == START
    assert [c.cost[0] for c in searched.judged] == [1, 2, 3, 5, 9, 17, 33, 40]


def test_result_is_kept_if_the_input_program_is_not_confirmed() -> None:
    searched = Searched(needs("n7"))
    best, asked = searched.best, searched.asked
    assert not searched.search.confirm(searched.judge(lambda _: False))
    assert searched.judged[-1] == START
    searched.search.continue_search()
    assert (searched.best, searched.asked) == (best, asked)
    assert searched.search.reducer.minimal


def test_second_confirmation_keeps_operators_required_by_the_first() -> None:
    searched = Searched(needs("n7"), one_by_one=True)
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
    unbroken = Searched(needs("n7"))
    unbroken.go_on(needs("n7", "n9"))
    for moment in range(len(unbroken.judged)):
        path = tmp_path / f"{moment}.sqlite"
        with closing(Journal(path)) as journal:
            first = Searched(needs("n7"), journal)

            def fails(
                candidate: Candidate, first: Searched = first, moment: int = moment
            ) -> bool:
                if len(first.judged) > moment:
                    raise Killed
                return needs("n7", "n9")(candidate)

            with pytest.raises(Killed):
                first.go_on(fails)
        with closing(Journal(path)) as journal:
            again = Searched(needs("n7"), journal)
            again.go_on(needs("n7", "n9"))
        assert again.best == unbroken.best
        assert again.search.verdicts() == unbroken.search.verdicts()
        assert again.judged == unbroken.judged[moment:]


def test_oracle_can_be_queried_without_confirmations() -> None:
    searched = Searched(needs("n7"))
    searched.go_on(needs("n7", "n9"))
    reducer, judged = searched.search.reducer, list(searched.judged)
    without = apply(START, [Drop(frozenset({"n9"}))])
    assert reducer.ask("ablation", without, judged=False).reproduced
    assert searched.judged == judged
    assert not reducer.ask("ablation", without).reproduced
    assert searched.judged == [*judged, without]
    assert reducer.ask("ablation", without, judged=False).reproduced
    assert not reducer.asker.has_reproduced(without)
