"""What is written down of each check."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from shrinkfx.failure.verdict import Observation, Outcome, Verdict
from shrinkfx.journal.journal import Journal
from shrinkfx.program.apply import apply
from shrinkfx.program.candidate import Candidate
from shrinkfx.program.edits import Drop
from shrinkfx.search.asker import Asker
from shrinkfx.search.reducer import Reducer
from shrinkfx.search.strategy import choose
from shrinkfx.testing import PLANTED, FakeOracle, chain, needs, whole

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
