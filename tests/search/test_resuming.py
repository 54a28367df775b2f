"""A search that is killed, at whichever moment, and goes on."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Set
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from shrinkfx.errors import BudgetExhausted, WorkerError
from shrinkfx.failure.verdict import Outcome, Verdict
from shrinkfx.journal.journal import Journal
from shrinkfx.program.candidate import Candidate
from shrinkfx.program.skeleton import Skeleton
from shrinkfx.search.asker import Asker, Budget
from shrinkfx.search.reducer import Reducer
from shrinkfx.search.strategy import choose
from shrinkfx.testing import (
    Answer,
    FakeOracle,
    chain,
    needs,
    skeletons,
    whole,
)

STRATEGIES = choose(None)
ROOT = Path(__file__).resolve().parents[2]
CHAIN = whole(chain("x", "a", "b", "c", "d", "e", "f"))


class Killed(BaseException):
    """Nobody survives this, and nobody cleans up."""


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
