"""Listings are asked about ahead, too, once fake tensors say what would be asked."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from rounds import Rounds
from support.fake_fitter import FakeFitter
from support.lanes import AdverseLanes
from support.listings import floats, given, listed, listing
from test_foreseeing import Learns, answering, rows

from shrinkfx.errors import SpeculationError
from shrinkfx.events import Event
from shrinkfx.journal.journal import Journal
from shrinkfx.program.candidate import Candidate
from shrinkfx.program.edits import Rewrite
from shrinkfx.search.asker import Asker
from shrinkfx.search.fitting import Fitter
from shrinkfx.search.reducer import Reducer
from shrinkfx.search.speculation import (
    SpeculativeOracle,
    WorkerSlots,
)
from shrinkfx.search.strategy import choose
from shrinkfx.testing import FakeOracle


@dataclass
class Case:
    """A listing that fails as long as a size, numbers and operators are there.

    One program in six hides that, by its digest.
    """

    seed: int

    def __post_init__(self) -> None:
        dice = random.Random(self.seed)
        lines, last = [], "x"
        for number in range(dice.randint(2, 5)):
            other, alpha = dice.choice(["y", "self.w", last]), dice.randint(2, 40)
            call = f"torch.ops.aten.add.Tensor({last}, {other}, alpha={alpha})"
            last = f"v{number}"
            lines.append(f"{last} = {call}")
        text = "\n".join([*lines, f"return ({last},)"])
        rows, columns = dice.choice([2, 5, 17, 33]), dice.choice([1, 8, 40])
        inputs = [given(name, floats(rows, columns)) for name in "xy"]
        weight = given("w", floats(rows, columns), "parameter")
        self.start = listed(listing(text, *inputs, weight))
        self.least = dice.choice([1, 1, rows // 2, rows])
        numbers = [line.rpartition("=")[2] for line in lines]
        self.needed = dice.sample(numbers, dice.randint(0, 2))

    def fails(self, candidate: Candidate) -> bool:
        program = candidate.listing
        assert program is not None
        codes = [line.code for line in program.main.statements]
        largest = max(
            (max(g.recipe().shape, default=1) for g in program.inputs), default=1
        )
        if largest < self.least or int(candidate.digest[:4], 16) % 6 == 0:
            return candidate.digest == self.start.digest
        return all(any(number in code for code in codes) for number in self.needed)


@dataclass
class Searched:
    """A search of listings with some lanes, and what is seen of it from outside."""

    case: Case
    lanes: WorkerSlots
    fitter: Fitter = field(default_factory=FakeFitter)

    def __post_init__(self) -> None:
        journal = Journal()
        self.oracle = Learns(answering(self.case.fails))
        self.events: list[Event] = []
        self.foreseeing = SpeculativeOracle(self.oracle, self.lanes)
        self.reducer = Reducer(
            self.case.start,
            Asker(self.foreseeing, journal=journal),
            choose(None),
            listener=self.events.append,
            fitter=self.fitter,
        )
        self.reducer.run()
        self.checks = rows(journal)

    def seen(self) -> list[object]:
        found = self.reducer
        digests = [digest for digest, _ in self.oracle.learnt]
        return [digests, found.history, found.minimal_kinds, self.checks]


@pytest.mark.parametrize("seed", range(50))
def test_printed_program_search_is_the_same_with_any_number_of_jobs(seed: int) -> None:
    case = Case(seed)
    check = answering(case.fails)
    lanes = [AdverseLanes(check, jobs, seed) for jobs in (1, 2, 4)]
    alone, *others = (Searched(case, each) for each in lanes)
    assert alone.foreseeing.asked_ahead == 0
    for search in others:
        assert search.seen() == alone.seen()
        assert search.foreseeing.of_use > 0
    assert all(each.under_way == [] for each in lanes)


@pytest.mark.parametrize(("jobs", "share"), [(2, 0.7), (4, 0.5)])
def test_several_jobs_take_fewer_rounds(jobs: int, share: float) -> None:
    alone = several = 0
    for seed in range(20):
        case = Case(seed)
        one, more = (Rounds(FakeOracle(case.fails), count) for count in (1, jobs))
        Searched(case, one)
        Searched(case, more)
        alone, several = alone + one.rounds, several + more.rounds
    assert several <= share * alone


# --- what fits is asked of somebody, who may have no answer


class Silent(FakeFitter):
    """Has no answer about most listings, unless the search itself asks."""

    def ahead(self) -> Silent:
        twin = Silent()
        twin.is_ahead = True
        return twin

    is_ahead = False

    def fit(
        self, candidate: Candidate, rewrites: Sequence[Rewrite]
    ) -> list[Rewrite | None]:
        if self.is_ahead and int(candidate.digest[:4], 16) % 3:
            raise SpeculationError("no memory")
        return super().fit(candidate, rewrites)


@pytest.mark.parametrize("seed", range(6))
def test_speculation_error_does_not_change_the_search(seed: int) -> None:
    case = Case(seed)
    check = answering(case.fails)
    alone = Searched(case, AdverseLanes(check, 1, seed))
    search = Searched(case, AdverseLanes(check, 4, seed), Silent())
    assert search.seen() == alone.seen()
