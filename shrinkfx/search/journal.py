"""A SQLite record of every check, in the output folder."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from shrinkfx.failure.signature import Signature
from shrinkfx.failure.verdict import Verdict
from shrinkfx.program.candidate import Candidate
from shrinkfx.program.messages import Build
from shrinkfx.program.sizes import Sizes
from shrinkfx.search.examples import Answer, Example

_TABLES = """
CREATE TABLE IF NOT EXISTS checks (
    number INTEGER PRIMARY KEY,
    asked_at REAL NOT NULL,
    strategy TEXT NOT NULL,
    form TEXT NOT NULL,
    build TEXT NOT NULL,
    digest TEXT NOT NULL,
    candidate TEXT NOT NULL,
    operators INTEGER NOT NULL,
    outcome TEXT,
    signature TEXT,
    failure TEXT,
    reason TEXT,
    seconds REAL,
    cpu_seconds REAL,
    log TEXT
);
CREATE TABLE IF NOT EXISTS run (settings TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS sweep (settings TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS examples (
    number INTEGER PRIMARY KEY,
    asked_at REAL NOT NULL,
    part TEXT NOT NULL,
    sizes TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    example TEXT
)
"""


@dataclass(frozen=True)
class Asked:
    """A question as it was written down.

    Attributes:
        candidate: what ``Candidate.to_json`` gave.
        failure: what was seen, or None.
    """

    digest: str
    form: str
    candidate: Mapping[str, Any]
    failure: Signature | None = None


class Journal:
    """Write each question before it is asked, and its answer after.

    A row without an outcome is a check that did not end.
    """

    def __init__(
        self, path: Path | str, settings: Mapping[str, Any] | None = None
    ) -> None:
        """Open a journal, or begin one.

        Args:
            settings: what every check of the run shares, as JSON can hold it.
        """
        self._db = _opened(path)
        if settings is not None:
            self._db.execute("INSERT INTO run VALUES (?)", (json.dumps(settings),))

    def asked(
        self, strategy: str, form: str, candidate: Candidate, build: str = Build.STOCK
    ) -> int:
        """Note a question and return its number."""
        row = (
            time.time(),
            strategy,
            form,
            build,
            candidate.digest,
            json.dumps(candidate.to_json()),
            candidate.cost[0],
        )
        cursor = self._db.execute(
            "INSERT INTO checks"
            " (asked_at, strategy, form, build, digest, candidate, operators)"
            " VALUES (?, ?, ?, ?, ?, ?, ?)",
            row,
        )
        assert cursor.lastrowid is not None
        return cursor.lastrowid

    def answered(self, number: int, verdict: Verdict) -> None:
        seen = verdict.observation
        self._db.execute(
            "UPDATE checks SET outcome=?, signature=?, failure=?, reason=?, seconds=?,"
            " cpu_seconds=?, log=? WHERE number=?",
            (
                verdict.outcome.value,
                str(seen.signature) if seen.signature else None,
                json.dumps(asdict(seen.signature)) if seen.signature else None,
                seen.invalid or seen.unresolved or seen.stopped or None,
                seen.seconds,
                seen.cpu_seconds,
                seen.log,
                number,
            ),
        )

    def settings(self) -> dict[str, Any]:
        """Fetch what every check of the run shares."""
        row = self._db.execute("SELECT settings FROM run").fetchone()
        found: dict[str, Any] = json.loads(row[0]) if row else {}
        return found

    def find(self, digest: str) -> list[Asked]:
        """List the questions about candidates whose digest begins so.

        The last word on a candidate is in its last row.
        """
        rows = self._db.execute(
            "SELECT digest, form, candidate, failure FROM checks"
            " WHERE substr(digest, 1, ?) = ? ORDER BY number",
            (len(digest), digest),
        )
        return [
            Asked(d, form, json.loads(text), _failure(failure))
            for d, form, text, failure in rows
        ]

    def close(self) -> None:
        self._db.close()


class SweepJournal:
    """The examples of a sweep, which can so go on after a kill.

    Args:
        part: which of the sweep's questions; the same sizes may be in several.
    """

    def __init__(self, path: Path | str, part: str = "inside") -> None:
        self._db = _opened(path)
        self._part = part

    def begin(self, settings: Mapping[str, Any]) -> None:
        """Note what all examples share."""
        self._db.execute("INSERT INTO sweep VALUES (?)", (json.dumps(settings),))

    def settings(self) -> dict[str, Any]:
        """Fetch what all examples share, or nothing if there was no sweep."""
        row = self._db.execute("SELECT settings FROM sweep").fetchone()
        found: dict[str, Any] = json.loads(row[0]) if row else {}
        return found

    def recall(self, sizes: Sizes, attempt: int) -> Example | None:
        """Fetch an example's answer; sizes that ended two sweeps have none for good."""
        rows = self._db.execute(
            "SELECT example FROM examples WHERE part=? AND sizes=? AND attempt=?",
            (self._part, json.dumps(sizes), attempt),
        ).fetchall()
        for (text,) in rows:
            if text is not None:
                return Example.from_json(json.loads(text))
        if len(rows) < _TRIES:
            return None
        return Example(sizes, Answer.UNRESOLVED, reason=f"did not end {_TRIES} times")

    def asked(self, sizes: Sizes, attempt: int) -> int:
        """Note that sizes are about to be run, and return the note's number."""
        row = (time.time(), self._part, json.dumps(sizes), attempt)
        cursor = self._db.execute(
            "INSERT INTO examples (asked_at, part, sizes, attempt) VALUES (?, ?, ?, ?)",
            row,
        )
        assert cursor.lastrowid is not None
        return cursor.lastrowid

    def answered(self, number: int, example: Example) -> None:
        self._db.execute(
            "UPDATE examples SET example=? WHERE number=?",
            (json.dumps(example.to_json()), number),
        )

    def withdrawn(self, number: int) -> None:
        """Forget a question that was not put after all."""
        self._db.execute("DELETE FROM examples WHERE number=?", (number,))

    def close(self) -> None:
        self._db.close()


_TRIES = 2


def _opened(path: Path | str) -> sqlite3.Connection:
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA journal_mode=WAL")
    db.executescript(_TABLES)
    return db


def _failure(text: str | None) -> Signature | None:
    return Signature.from_json(json.loads(text)) if text else None
