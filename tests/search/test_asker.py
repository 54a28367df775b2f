"""The query cache, the budget and the journal."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Set
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from shrinkfx.errors import (
    BudgetExhausted,
    PhaseLimitReached,
    StorageError,
    WorkerError,
)
from shrinkfx.failure.signature import Kind, Signature, Stage
from shrinkfx.failure.verdict import Observation, Outcome, Verdict
from shrinkfx.journal.journal import Journal
from shrinkfx.program.apply import apply
from shrinkfx.program.candidate import Candidate
from shrinkfx.program.edits import Drop
from shrinkfx.program.skeleton import Skeleton
from shrinkfx.search.asker import Asker, Budget, Confirmation
from shrinkfx.search.reducer import Reducer
from shrinkfx.search.strategy import choose
from shrinkfx.testing import PLANTED, Answer, FakeOracle, chain, needs, skeletons, whole

# What an answer costs, and where it is from: no reducer needed.


WHOLE = whole(chain("x", "a", "b", "c"))
WITHOUT_A, WITHOUT_B, WITHOUT_C = (
    apply(WHOLE, [Drop(frozenset({name}))]) for name in "abc"
)


def test_verdict_is_cached_and_charged_to_the_budget_once() -> None:
    oracle, budget = FakeOracle(needs("b")), Budget()
    asker = Asker(oracle, budget=budget)
    for _ in range(3):
        assert asker.ask("drop_nodes", WITHOUT_A).reproduced
    assert not asker.ask("drop_nodes", WITHOUT_B).reproduced
    assert oracle.asked == [WITHOUT_A, WITHOUT_B]
    assert (budget.checks, asker.cached, asker.query_count) == (2, 2, 2)
    assert [v.outcome for v in asker.verdicts()] == ["reproduced", "passed"]


def test_mismatch_in_another_property_is_an_other_failure_also_on_resume(
    tmp_path: Path,
) -> None:
    values, shape = (
        Signature(Kind.MISMATCH, Stage.COMPARE, differs=each)
        for each in ("values", "shape")
    )

    class WrongShapes:
        def check(self, candidate: Candidate) -> Verdict:
            return Verdict(Outcome.REPRODUCED, Observation(shape))

    for _ in range(2):  # the second one is answered by the journal
        with closing(Journal(tmp_path / "journal.sqlite")) as journal:
            asker = Asker(WrongShapes(), journal=journal)
            asker.record_failure(WHOLE, values)
            assert asker.find_signature(WHOLE) == values
            asker.ask("merge_inputs", WITHOUT_A, shown=asker.find_signature(WHOLE))
            assert [c for c, _ in asker.by_catch] == [WITHOUT_A]
            assert not asker.has_reproduced(WITHOUT_A)
            assert asker.ask("drop_nodes", WITHOUT_B).reproduced


def test_journaled_verdict_replaces_the_oracle_query_and_counts_as_check(
    tmp_path: Path,
) -> None:
    path = tmp_path / "journal.sqlite"
    for asked in ([WITHOUT_A], []):
        oracle, budget = FakeOracle(needs("b")), Budget(max_checks=1)
        with closing(Journal(path)) as journal:
            asker = Asker(oracle, budget=budget, journal=journal, form="source")
            assert asker.ask("drop_nodes", WITHOUT_A).reproduced
        assert (oracle.asked, budget.checks, asker.cached) == (asked, 1, 0)


class Killed(BaseException):
    """Nobody survives this."""


@pytest.mark.parametrize("again", [False, True])
def test_query_killed_twice_is_repeated_only_on_demand(
    tmp_path: Path, again: bool
) -> None:
    path = tmp_path / "journal.sqlite"

    def dies(candidate: Candidate) -> bool:
        raise Killed

    for _ in range(2):
        with closing(Journal(path)) as journal, pytest.raises(Killed):
            Asker(FakeOracle(dies), journal=journal).ask("drop_nodes", WITHOUT_A)
    oracle = FakeOracle(needs("b"))
    with closing(Journal(path)) as journal:
        asker = Asker(oracle, journal=journal, again=again)
        verdict = asker.ask("drop_nodes", WITHOUT_A)
    assert verdict.outcome is (Outcome.REPRODUCED if again else Outcome.UNRESOLVED)
    assert oracle.asked == [WITHOUT_A] * again


def test_confirmation_overrules_a_reproduced_verdict() -> None:
    asker, strict = Asker(FakeOracle(needs("b"))), FakeOracle(needs("a", "b"))
    assert asker.ask("drop_nodes", WITHOUT_A).reproduced
    asker.add_confirmation(Confirmation("repro", Asker(strict), "its repro passes"))
    verdict = asker.ask("drop_nodes", WITHOUT_A)
    assert (verdict.outcome, verdict.observation.stopped) == (
        Outcome.PASSED,
        "its repro passes",
    )
    assert asker.ask("drop_nodes", WITHOUT_C).reproduced
    assert not asker.ask("drop_nodes", WITHOUT_B).reproduced
    assert strict.asked == [WITHOUT_A, WITHOUT_C]  # WITHOUT_B passes as it is
    assert asker.ask("ablation", WITHOUT_A, judged=False).reproduced
    assert not asker.has_reproduced(WITHOUT_A)


def test_phase_limit_counts_oracle_and_journaled_verdicts(tmp_path: Path) -> None:
    with closing(Journal(tmp_path / "journal")) as journal:
        for oracle in (FakeOracle(needs("b")), FakeOracle(needs("b"))):
            asker = Asker(oracle, journal=journal, most=2)
            asker.ask("drop_nodes", WITHOUT_A)
            asker.ask("drop_nodes", WITHOUT_B)
            with pytest.raises(PhaseLimitReached, match="limit of 2 checks reached"):
                asker.ask("drop_nodes", WITHOUT_C)
            assert asker.ask("drop_nodes", WITHOUT_A).reproduced  # known


# Checks and seconds that are left; the clock is the test's.


class Clock:
    """Stand still until told."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_budget_counts_checks_and_stops_after_the_last() -> None:
    budget = Budget(max_checks=2)
    budget.spend()
    budget.spend()
    with pytest.raises(BudgetExhausted, match="limit of 2 checks reached"):
        budget.spend()
    assert budget.checks == 2


def test_budget_stops_when_its_seconds_are_over() -> None:
    clock = Clock()
    budget = Budget(max_seconds=90.0, clock=clock)
    clock.now += 89.0
    budget.spend()
    assert budget.seconds_left == 1.0
    clock.now += 2.0
    assert budget.seconds_left == 0.0
    with pytest.raises(BudgetExhausted, match=r"time limit of 1\.5 minutes reached"):
        budget.spend()
    assert budget.checks == 1


def test_remaining_time_is_estimated_from_recent_and_allowed_checks() -> None:
    budget = Budget(max_checks=10)
    assert budget.time_for(5) is None
    for seconds in [100.0, *[2.0] * 20]:  # the first one was of a larger program
        budget.record_wait(seconds)
    assert budget.time_for(5) == 10.0
    assert budget.time_for(50) == 20.0
    assert Budget().time_for(5) is None


def test_time_reserved_for_a_repro_is_not_available_to_queries() -> None:
    clock = Clock()
    budget = Budget(max_seconds=180.0, clock=clock)
    assert budget.share() == 45.0
    budget.keep(50.0)
    budget.keep(20.0)  # a smaller one changes nothing
    assert budget.seconds_left == 80.0
    assert (budget.has(80.0), budget.has(81.0)) == (True, False)
    assert budget.share() == 20.0
    clock.now += 100.0
    assert (budget.seconds_left, budget.share(), budget.has(0.0)) == (0.0, 0.0, False)
    budget.reserve_s = 0.0
    assert budget.seconds_left == 80.0


def test_guaranteed_seconds_may_exceed_the_time_limit() -> None:
    """The rest may not: it is not asked where only overtime is left."""
    clock = Clock()
    budget = Budget(max_seconds=180.0, clock=clock)
    clock.now += 200.0
    budget.guarantee_seconds(90.0)
    assert budget.seconds_left == 90.0
    assert not budget.has(1.0)
    assert budget.share() == 0.0
    clock.now += 90.0
    assert budget.seconds_left == 0.0
    budget = Budget(max_seconds=180.0, clock=clock)
    budget.guarantee_seconds(90.0)
    assert budget.seconds_left == 180.0


def test_speculative_check_is_estimated_by_its_waiting_time() -> None:
    budget = Budget(100)
    for _ in range(4):
        budget.record_wait(1.0, check_s=3.0)
    assert budget.pace_s == 3.0
    assert budget.time_for(10) == 10.0


# What is written down of each check.


CANDIDATE = whole(chain("x", "relu", "tanh"))


def rows(path: Path) -> list[dict[str, Any]]:
    with closing(sqlite3.connect(path)) as db:
        db.row_factory = sqlite3.Row
        return [dict(row) for row in db.execute("SELECT * FROM checks ORDER BY number")]


def test_journal_finds_a_candidate_by_its_digest_prefix(
    tmp_path: Path,
) -> None:
    smaller = apply(CANDIDATE, [Drop(frozenset({"relu"}))])
    with closing(Journal(tmp_path / "journal.sqlite")) as journal:
        for candidate in (CANDIDATE, smaller):
            number = journal.record_query("drop_nodes", "source", candidate)
        journal.record_verdict(
            number, Verdict(Outcome.REPRODUCED, Observation(PLANTED))
        )
        (found,) = journal.list_queries(smaller.digest[:12])
        assert (found.digest, found.form) == (smaller.digest, "source")
        assert (found.candidate, found.seen) == (smaller.to_json(), PLANTED)
        assert [asked.seen for asked in journal.list_queries()] == [None, PLANTED]
        assert journal.list_queries("no digest") == []


def test_journal_stores_the_query_before_the_verdict(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    with closing(Journal(path)) as journal:
        assert journal.record_query("drop_nodes", "program", CANDIDATE) == 1
        (row,) = rows(path)
    assert row["outcome"] is None
    assert (row["strategy"], row["form"]) == ("drop_nodes", "program")
    assert row["digest"] == CANDIDATE.digest
    assert row["operators"] == 2
    data = json.loads(row["candidate"])
    assert Candidate.from_json(CANDIDATE.skeleton, data) == CANDIDATE


@pytest.mark.parametrize(
    ("seen", "outcome", "signature", "reason"),
    [
        (Observation(PLANTED), Outcome.REPRODUCED, str(PLANTED), None),
        (Observation(), Outcome.PASSED, None, None),
        (Observation(invalid="why"), Outcome.INVALID, None, "why"),
        (Observation(unresolved="slow"), Outcome.UNRESOLVED, None, "slow"),
    ],
)
def test_journal_stores_the_verdict(
    tmp_path: Path,
    seen: Observation,
    outcome: Outcome,
    signature: str | None,
    reason: str | None,
) -> None:
    path = tmp_path / "journal.sqlite"
    with closing(Journal(path)) as journal:
        number = journal.record_query("drop_nodes", "program", CANDIDATE)
        journal.record_verdict(number, Verdict(outcome, seen))
    (row,) = rows(path)
    assert row["outcome"] == outcome
    assert (row["signature"], row["reason"]) == (signature, reason)


def test_reducer_journals_queries_in_order(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    oracle = FakeOracle(needs("c"))
    start = whole(chain("x", "a", "b", "c", "d"))
    with closing(Journal(path)) as journal:
        Reducer(
            start, Asker(oracle, journal=journal, form="source"), choose(None)
        ).run()
    written = rows(path)
    assert [row["digest"] for row in written] == oracle.digests
    assert {row["form"] for row in written} == {"source"}
    assert all(row["outcome"] for row in written)


# A search that is killed, at whichever moment, and goes on.


STRATEGIES = choose(None)
ROOT = Path(__file__).resolve().parents[2]
CHAIN = whole(chain("x", "a", "b", "c", "d", "e", "f"))


class MortalOracle(FakeOracle):
    """Is killed at a question, with the answer on its lips."""

    def __init__(self, answer: Answer, questions: int) -> None:
        super().__init__(answer)
        self._questions = questions

    def check(self, candidate: Candidate) -> Verdict:
        verdict = super().check(candidate)
        if len(self.asked) > self._questions:
            raise Killed
        return verdict


def reduce(journal: Journal, start: Candidate, oracle: FakeOracle) -> Reducer:
    reducer = Reducer(start, Asker(oracle, journal=journal), STRATEGIES)
    reducer.run()
    return reducer


@pytest.fixture(name="path")
def _path(tmp_path: Path) -> Path:
    return tmp_path / "journal.sqlite"


@settings(max_examples=25)  # each waits for the disk some hundred times
@given(skeletons(), st.data())
def test_search_killed_at_any_query_resumes_to_the_same_result(
    program: Skeleton, data: st.DataObject
) -> None:
    start = whole(program)
    needed = data.draw(st.sets(st.sampled_from(start.operators), min_size=1))
    oracle = FakeOracle(needs(*needed))
    unbroken = reduce(Journal(), start, oracle)
    assume(oracle.asked)
    moment = data.draw(st.integers(0, len(oracle.asked) - 1))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal.sqlite"
        check_killed_at(moment, path, start, needed, unbroken)


def check_killed_at(
    moment: int, path: Path, start: Candidate, needed: Set[str], unbroken: Reducer
) -> None:
    first = MortalOracle(needs(*needed), moment)
    with closing(Journal(path)) as journal, pytest.raises(Killed):
        reduce(journal, start, first)
    again = FakeOracle(needs(*needed))
    with closing(Journal(path)) as journal:
        resumed = reduce(journal, start, again)
        assert journal.recalled == moment
    assert resumed.best == unbroken.best
    assert resumed.history == unbroken.history
    assert resumed.asker.verdicts() == unbroken.asker.verdicts()
    finished, unfinished = first.digests[:moment], first.digests[moment]
    assert not set(finished) & set(again.digests)
    assert again.digests[0] == unfinished


@pytest.fixture(name="unfinished")
def _unfinished(path: Path) -> tuple[Path, str]:
    """A journal that ends with a question, and that one's digest."""
    oracle = MortalOracle(needs("c"), 2)
    with closing(Journal(path)) as journal, pytest.raises(Killed):
        reduce(journal, CHAIN, oracle)
    return path, oracle.digests[-1]


def test_query_that_did_not_end_twice_is_not_repeated(
    unfinished: tuple[Path, str],
) -> None:
    path, digest = unfinished
    with closing(Journal(path)) as journal, pytest.raises(Killed):
        reduce(journal, CHAIN, MortalOracle(needs("c"), 0))
    oracle = FakeOracle(needs("c"))
    with closing(Journal(path)) as journal:
        reducer = reduce(journal, CHAIN, oracle)
    assert digest not in oracle.digests
    (verdict,) = [
        v for v in reducer.asker.verdicts() if v.outcome is Outcome.UNRESOLVED
    ]
    assert verdict.observation.unresolved == "did not end 2 times"


def test_query_interrupted_by_a_machine_shutdown_is_not_repeated(
    unfinished: tuple[Path, str],
) -> None:
    path, digest = unfinished
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("UPDATE checks SET boot='another'")
    oracle = FakeOracle(needs("c"))
    with closing(Journal(path)) as journal:
        reducer = reduce(journal, CHAIN, oracle)
    assert digest not in oracle.digests
    assert len(oracle.asked) == len(reducer.asker.verdicts()) - 3
    (verdict,) = [
        v for v in reducer.asker.verdicts() if v.outcome is Outcome.UNRESOLVED
    ]
    assert "the machine shut down during this check" in verdict.observation.unresolved


@pytest.mark.parametrize(
    ("reason", "left"),
    [
        (KeyboardInterrupt(), 0),
        (BudgetExhausted("time limit reached"), 0),
        (WorkerError("the worker died"), 1),
    ],
)
def test_only_a_worker_error_counts_as_an_attempt(
    path: Path, reason: BaseException, left: int
) -> None:
    def check(candidate: Candidate) -> Verdict:
        raise reason

    with closing(Journal(path)) as journal:
        with pytest.raises(type(reason)):
            journal.ask("drop_nodes", "program", CHAIN, "stock", check)
        assert len(journal.list_queries(CHAIN.digest)) == left


class LearningOracle(FakeOracle):
    def __init__(self, answer: Answer) -> None:
        super().__init__(answer)
        self.learnt: list[tuple[Candidate, Verdict]] = []

    def check(self, candidate: Candidate) -> Verdict:
        verdict = super().check(candidate)
        self.learn(candidate, verdict)
        return verdict

    def learn(self, candidate: Candidate, verdict: Verdict) -> None:
        self.learnt.append((candidate, verdict))


def test_learning_oracle_receives_recalled_verdicts(path: Path) -> None:
    first, second = (LearningOracle(needs("c")) for _ in range(2))
    for oracle in (first, second):
        with closing(Journal(path)) as journal:
            reduce(journal, CHAIN, oracle)
    assert first.learnt == second.learnt
    assert first.asked
    assert not second.asked


def test_time_of_earlier_sessions_counts_toward_the_limit(path: Path) -> None:
    with closing(Journal(path)) as journal:
        reduce(journal, CHAIN, FakeOracle(needs("c")))
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("UPDATE sessions SET began_at = seen_at - 50")
    with closing(Journal(path)) as journal:
        journal.tick()  # its own time is told by its own clock
        assert journal.seconds_before() == pytest.approx(50, abs=1e-3)
        used = journal.seconds_before()
    budget = Budget(max_seconds=40, seconds_before=used)
    assert budget.seconds_left == 0.0
    with pytest.raises(BudgetExhausted):
        budget.spend()
    budget.count()  # what is answered costs no time


_SEARCH = """
from shrinkfx.search.asker import Asker
from shrinkfx.search.reducer import Reducer
from shrinkfx.search.strategy import choose
from shrinkfx.testing import FakeOracle, feed, needs, operator, skeleton, whole

nodes = {"x": "", "y": "", "w": feed()}
for n in range(40):
    nodes[f"a{n}"] = f"a{n - 1} y" if n else "x w"
    nodes[f"b{n}"] = operator(f"a{n} a{n // 2}", scope=f"layer{n // 4}")
start = whole(skeleton(nodes))
oracle = FakeOracle(needs("a7", "b23", "a31"))
suspects = {f"a{n}": n / 40 for n in range(20, 40)}
Reducer(start, Asker(oracle), choose(None), suspects=suspects).run()
print(*oracle.digests)
"""


def test_queries_do_not_depend_on_the_python_hash_seed() -> None:
    asked = set()
    for seed in ("0", "1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", _SEARCH],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
            text=True,
        )
        asked.add(done.stdout)
    assert len(asked) == 1
    assert len(asked.pop().split()) > 20


KILLED_IN_A_WRITE = """
import os, sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("PRAGMA journal_mode=TRUNCATE")
db.execute("PRAGMA cache_size=1")  # so that changes reach the file at once
db.execute("BEGIN IMMEDIATE")
for number in range(1000):
    db.execute("INSERT INTO facts VALUES (?, ?)", (f"fact {number}", '"' + "x" * 999))
os.kill(os.getpid(), 9)
"""


def test_readers_undo_what_a_killed_process_was_writing(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    with closing(Journal(path)) as journal:
        journal.note("known", 1)
    subprocess.run([sys.executable, "-c", KILLED_IN_A_WRITE, str(path)], check=False)
    assert (tmp_path / "journal.sqlite-journal").stat().st_size > 0
    with closing(Journal(path, only_read=True)) as journal:
        assert journal.fact("known") == 1
        assert journal.fact("fact 1") is None
        with pytest.raises(StorageError):
            journal.note("other", 2)
