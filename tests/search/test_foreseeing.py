"""Asking ahead changes when an answer is found, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from support.lanes import AdverseLanes, Check
from synthetic import Blame, Needles, make_case

from shrinkfx.errors import BudgetExhausted, StrategyError, WorkerError
from shrinkfx.events import Event, QueryAnswered, StepTaken
from shrinkfx.failure.verdict import ConcurrentQueryError, Observation, Outcome, Verdict
from shrinkfx.journal.journal import Journal
from shrinkfx.program.candidate import Candidate
from shrinkfx.program.edits import Drop, Edit
from shrinkfx.program.view import View
from shrinkfx.search.asker import Asker, Budget, Confirmation
from shrinkfx.search.fitting import Fitter, Unfitted
from shrinkfx.search.reducer import Reducer
from shrinkfx.search.speculation import SpeculativeOracle
from shrinkfx.search.staged import in_each_form
from shrinkfx.search.strategy import Strategy, choose
from shrinkfx.testing import PLANTED, FakeOracle, chain, needs, whole

STRATEGIES = choose(None)
START = whole(chain("x", *(f"n{i}" for i in range(40))))
NEEDED = needs("n5", "n11", "n30")

Row = tuple[str | int | None, ...]


class Learns:
    """What search learns by: the same answer for the same candidate."""

    def __init__(self, check: Check) -> None:
        self.check = check
        self.learnt: list[tuple[str, Outcome]] = []

    def learn(self, candidate: Candidate, verdict: Verdict) -> None:
        self.learnt.append((candidate.digest, verdict.outcome))


def answering(fails: Callable[[Candidate], bool]) -> Check:
    """Answer in every way there is, by the digest where it does not fail."""
    others = [Outcome.PASSED, Outcome.PASSED, Outcome.DIFFERENT, Outcome.INVALID]

    def check(candidate: Candidate) -> Verdict:
        number = int(candidate.digest[:8], 16)
        if fails(candidate):
            return Verdict(Outcome.REPRODUCED, Observation(PLANTED, seconds=number))
        if number % 11 == 0:
            seen = Observation(unresolved="no memory", seconds=number)
            return Verdict(Outcome.UNRESOLVED, seen)
        return Verdict(others[number % 4], Observation(seconds=number, log="seen"))

    return check


@dataclass
class Searched:
    """A search with so many jobs, and all that can be seen of it from outside."""

    check: Check
    jobs: int
    seed: int = 0
    start: Candidate = START
    suspects: dict[str, float] = field(default_factory=dict)
    strategies: list[Strategy] = field(default_factory=lambda: STRATEGIES)
    journal: Journal = field(default_factory=Journal)
    max_checks: int | None = None
    fitter: Fitter = Unfitted()  # noqa: RUF009 - it holds nothing

    def __post_init__(self) -> None:
        self.oracle = Learns(self.check)
        self.lanes = AdverseLanes(self.check, self.jobs, self.seed)
        self.foreseeing = SpeculativeOracle(self.oracle, self.lanes)
        self.events: list[Event] = []
        self.budget = Budget(self.max_checks, clock=lambda: 0.0)
        self.reducer = Reducer(
            self.start,
            Asker(self.foreseeing, budget=self.budget, journal=self.journal),
            self.strategies,
            suspects=self.suspects,
            listener=self.events.append,
            fitter=self.fitter,
        )

    def run(self) -> Searched:
        self.reducer.run()
        assert self.lanes.under_way == []
        return self

    def counted(self) -> list[str]:
        """List the questions that were counted, by the lanes or the oracle itself."""
        counted = [*self.lanes.asked_alone]
        for each in self.lanes.begun:
            counted += [each.candidate.digest] * each.times_counted
        return sorted(counted)

    def seen(self) -> list[object]:
        asker = self.reducer.asker
        return [
            self.counted(),
            *(self.reducer.best, self.reducer.history, self.reducer.minimal),
            *(asker.verdicts(), asker.cached, asker.by_catch),
            *(self.budget.checks, self.events, self.oracle.learnt),
            *(rows(self.journal),),
        ]


def rows(journal: Journal) -> list[Row]:
    columns = "digest, form, build, outcome, observation, log"
    found = journal.db.read(f"SELECT {columns} FROM checks ORDER BY rowid")
    return [tuple(row) for row in found]


@pytest.mark.parametrize("seed", range(50))
def test_search_is_the_same_with_any_number_of_jobs(seed: int) -> None:
    case = make_case(seed, 24, 3, Needles.NEAR, [*Blame][seed % len(Blame)])
    check = answering(case.answer)
    alone, *others = (
        Searched(check, jobs, seed, whole(case.program), case.suspects).run()
        for jobs in (1, 2, 4, 8)
    )
    assert alone.foreseeing.asked_ahead == 0
    assert alone.lanes.digests == [digest for digest, _ in alone.oracle.learnt]
    assert alone.counted() == sorted(alone.lanes.digests)
    for search in others:
        assert search.seen() == alone.seen()
        assert 0 < search.foreseeing.of_use <= search.foreseeing.asked_ahead


# --- what ends a search


@pytest.mark.parametrize("allowed", [1, 7, 20])
def test_budget_counts_only_verdicts_that_the_search_used(allowed: int) -> None:
    ended = []
    for jobs in (1, 4):
        search = Searched(answering(NEEDED), jobs, max_checks=allowed)
        with pytest.raises(BudgetExhausted, match=f"limit of {allowed} checks reached"):
            search.run()
        assert search.lanes.under_way == []
        assert search.budget.checks == allowed
        ended.append(search.seen())
    assert ended[0] == ended[1]


def test_interrupt_ends_all_running_checks() -> None:
    class Interrupted(AdverseLanes):
        def wait(self, pending: object) -> None:
            if len(self.begun) > 10:
                raise KeyboardInterrupt
            super().wait(pending)  # type: ignore[arg-type]

    search = Searched(answering(NEEDED), 4)
    search.lanes.__class__ = Interrupted
    with pytest.raises(KeyboardInterrupt):
        search.reducer.run()
    assert search.lanes.under_way == []
    known = rows(search.journal)
    assert all(outcome for _, _, _, outcome, *_ in known)
    assert len(known) < len(search.lanes.begun)


def test_speculative_error_is_ignored_if_the_verdict_is_not_needed() -> None:
    asked = [digest for digest, _ in Searched(answering(NEEDED), 1).run().oracle.learnt]

    def check(candidate: Candidate) -> Verdict:
        if candidate.digest not in asked:
            raise WorkerError("it is of no use")
        return answering(NEEDED)(candidate)

    search = Searched(check, 8).run()
    assert [digest for digest, _ in search.oracle.learnt] == asked
    assert search.foreseeing.of_use < search.foreseeing.asked_ahead


@pytest.mark.parametrize("error", [WorkerError("it died"), ValueError("a mistake")])
def test_speculative_error_is_raised_if_the_verdict_is_needed(error: Exception) -> None:
    asked = [digest for digest, _ in Searched(answering(NEEDED), 1).run().oracle.learnt]

    def check(candidate: Candidate) -> Verdict:
        if candidate.digest == asked[12]:
            raise error
        return answering(NEEDED)(candidate)

    for jobs in (1, 8):
        search = Searched(check, jobs)
        with pytest.raises(type(error), match=str(error)):
            search.run()
        assert [digest for digest, _ in search.oracle.learnt] == asked[:12]
        assert search.lanes.digests.count(asked[12]) == (1 if jobs == 1 else 2)
        assert search.lanes.under_way == []


class Lost:
    """Propose what there is, and get lost where a certain operator is missing."""

    name = "lost"
    combines = True

    def propose(self, view: View) -> Iterator[Edit]:
        if "n11" not in view.operators:
            raise RuntimeError("lost")
        for name in view.operators:
            yield Drop(frozenset({name}))


def test_strategy_error_in_speculation_is_raised_only_if_reached() -> None:
    search = Searched(answering(NEEDED), 8, strategies=[Lost()]).run()
    assert search.reducer.best.keep == {"n5", "n11", "n30"}
    search = Searched(answering(needs("n5")), 8, strategies=[Lost()])
    alone = Searched(answering(needs("n5")), 1, strategies=[Lost()])
    for each in (search, alone):
        with pytest.raises(StrategyError, match="lost"):
            each.run()
        assert each.lanes.under_way == []
    assert search.seen() == alone.seen()


class Moody(Lost):
    """Never propose in the same order twice."""

    times = 0

    def propose(self, view: View) -> Iterator[Edit]:
        Moody.times += 1
        names = view.operators
        turn = Moody.times * 7 % len(names)
        for name in (*names[turn:], *names[:turn]):
            yield Drop(frozenset({name}))


# --- answers that may not stand


def test_only_a_speculative_unresolved_verdict_is_queried_again() -> None:
    unresolved = Verdict(Outcome.UNRESOLVED, Observation(unresolved="no time"))

    def check(candidate: Candidate) -> Verdict:
        verdict = answering(NEEDED)(candidate)
        return verdict if verdict.reproduced else unresolved

    alone, search = (Searched(check, jobs).run() for jobs in (1, 4))
    assert search.seen() == alone.seen()
    assert max(map(search.lanes.digests.count, search.lanes.digests)) == 2
    assert max(map(alone.lanes.digests.count, alone.lanes.digests)) == 1


@pytest.mark.parametrize("seed", range(6))
def test_query_hindered_by_concurrency_is_repeated_alone_if_needed(seed: int) -> None:
    answer = answering(NEEDED)

    def hindered(candidate: Candidate) -> Verdict:
        if int(candidate.digest[:2], 16) % 3 == 0:
            raise ConcurrentQueryError
        return answer(candidate)

    search = Searched(answer, 4, seed)
    search.lanes._check = hindered
    assert search.run().seen() == Searched(answer, 1).run().seen()
    again = search.lanes.asked_alone
    assert again
    assert len({*again}) == len(again)
    assert {*again} <= {digest for digest, _ in search.oracle.learnt}


def test_verdict_that_no_longer_stands_is_queried_again() -> None:
    class Forgets(Learns):
        def stands(self, candidate: Candidate, verdict: Verdict) -> bool:
            return bool(verdict.reproduced)

    search = Searched(answering(NEEDED), 4)
    search.oracle = Forgets(search.check)
    search.foreseeing._oracle = search.oracle
    search.run()
    passed = [d for d, o in search.oracle.learnt if o is not Outcome.REPRODUCED]
    failed = [d for d, o in search.oracle.learnt if o is Outcome.REPRODUCED]
    assert max(search.lanes.digests.count(digest) for digest in passed) == 2
    assert max(search.lanes.digests.count(digest) for digest in failed) == 1
    assert search.seen() == Searched(answering(NEEDED), 1).run().seen()


# --- going on


class Killed(BaseException):
    """Nobody survives this, and nobody cleans up."""


class KilledLanes(AdverseLanes):
    """Are killed after so many waits, with all that is under way left as it is."""

    moment = 0

    def wait(self, pending: object) -> None:
        self.moment -= 1
        if self.moment < 0:
            for asked in self.under_way:
                asked.cancel = lambda: None  # type: ignore[method-assign]
            raise Killed
        super().wait(pending)  # type: ignore[arg-type]


def kill_search(path: Path, moment: int) -> None:
    """Search until a kill; leave a journal as a kill leaves it."""
    with closing(Journal(path)) as journal:
        search = Searched(answering(NEEDED), 4, journal=journal)
        search.lanes.__class__ = KilledLanes
        search.lanes.moment = moment  # type: ignore[attr-defined]
        with pytest.raises(Killed):
            search.reducer.run()


@pytest.mark.parametrize("jobs", [1, 4])
@pytest.mark.parametrize("moment", [0, 3, 9, 14])
def test_killed_search_resumes_to_the_same_result(
    tmp_path: Path, moment: int, jobs: int
) -> None:
    unbroken = Searched(answering(NEEDED), 1).run()
    kill_search(tmp_path / "journal.sqlite", moment)
    with closing(Journal(tmp_path / "journal.sqlite")) as journal:
        resumed = Searched(answering(NEEDED), jobs, journal=journal).run()
        # The question at the kill has a row without an answer, as with one job.
        answered = [row for row in rows(journal) if row[3]]
        assert answered == rows(unbroken.journal)
    assert resumed.reducer.history == unbroken.reducer.history
    assert resumed.reducer.asker.verdicts() == unbroken.reducer.asker.verdicts()
    assert resumed.oracle.learnt == unbroken.oracle.learnt
    assert resumed.budget.checks == unbroken.budget.checks


# --- searches in stages, and judges


@pytest.mark.parametrize("jobs", [1, 4])
def test_only_the_running_stage_speculates(jobs: int) -> None:
    asked: dict[str, list[str]] = {"program": [], "source": []}
    lanes = AdverseLanes(answering(NEEDED), jobs)

    def made(form: str, fails: Callable[[Candidate], bool]) -> Reducer:
        class Watched(Learns):
            def learn(self, candidate: Candidate, verdict: Verdict) -> None:
                asked[form].append(candidate.digest)

        own = replace_check(lanes, answering(fails))
        oracle = SpeculativeOracle(Watched(answering(fails)), own)
        return Reducer(START, Asker(oracle, journal=journal, form=form), STRATEGIES)

    journal = Journal()
    search = in_each_form(
        made("program", NEEDED), made("source", needs("n5", "n11", "n30", "n31"))
    )
    search.run()
    assert lanes.under_way == []
    assert search.reducer.best.keep == {"n5", "n11", "n30", "n31"}
    if jobs == 1:
        assert len(lanes.begun) == len(asked["program"]) + len(asked["source"])
    else:
        assert len(lanes.begun) > len(asked["program"]) + len(asked["source"])


def replace_check(lanes: AdverseLanes, check: Check) -> AdverseLanes:
    """Let another form be asked about in the same lanes."""
    twin = AdverseLanes(check, lanes.count)
    twin.begun = lanes.begun
    return twin


@pytest.mark.parametrize("jobs", [1, 4])
def test_confirmation_refuses_the_same_candidates_with_any_jobs(
    jobs: int,
) -> None:
    search = Searched(answering(NEEDED), jobs).run()
    strict = FakeOracle(needs("n5", "n11", "n30", "n31"))
    judge = Confirmation("repro", Asker(strict), "its repro passes")
    search.reducer.asker.add_confirmation(judge)
    search.reducer.restart(START)
    search.reducer.run()
    assert search.reducer.best.keep == {"n5", "n11", "n30", "n31"}
    assert search.lanes.under_way == []
    steps = [e for e in search.events if isinstance(e, StepTaken)]
    checks = [e for e in search.events if isinstance(e, QueryAnswered)]
    expected = _judged_alone()
    assert (steps, checks) == expected


def _judged_alone() -> tuple[list[StepTaken], list[QueryAnswered]]:
    search = Searched(answering(NEEDED), 1).run()
    strict = FakeOracle(needs("n5", "n11", "n30", "n31"))
    search.reducer.asker.add_confirmation(
        Confirmation("repro", Asker(strict), "passes")
    )
    search.reducer.restart(START)
    search.reducer.run()
    steps = [e for e in search.events if isinstance(e, StepTaken)]
    return steps, [e for e in search.events if isinstance(e, QueryAnswered)]
