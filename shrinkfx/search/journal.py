"""A SQLite record of every check, in the output folder."""

from __future__ import annotations

import json
import sqlite3
import time
from pathlib import Path

from shrinkfx.failure.verdict import Verdict
from shrinkfx.program.candidate import Candidate

_TABLE = """
CREATE TABLE IF NOT EXISTS checks (
    number INTEGER PRIMARY KEY,
    asked_at REAL NOT NULL,
    strategy TEXT NOT NULL,
    form TEXT NOT NULL,
    digest TEXT NOT NULL,
    candidate TEXT NOT NULL,
    operators INTEGER NOT NULL,
    outcome TEXT,
    signature TEXT,
    reason TEXT,
    seconds REAL,
    cpu_seconds REAL,
    log TEXT
)
"""


class Journal:
    """Write each question before it is asked, and its answer after.

    A row without an outcome is a check that did not end.
    """

    def __init__(self, path: Path | str) -> None:
        self._db = sqlite3.connect(path, isolation_level=None)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute(_TABLE)

    def asked(self, strategy: str, form: str, candidate: Candidate) -> int:
        """Note a question and return its number."""
        row = (
            time.time(),
            strategy,
            form,
            candidate.digest,
            json.dumps(candidate.to_json()),
            candidate.cost[0],
        )
        cursor = self._db.execute(
            "INSERT INTO checks"
            " (asked_at, strategy, form, digest, candidate, operators)"
            " VALUES (?, ?, ?, ?, ?, ?)",
            row,
        )
        assert cursor.lastrowid is not None
        return cursor.lastrowid

    def answered(self, number: int, verdict: Verdict) -> None:
        seen = verdict.observation
        self._db.execute(
            "UPDATE checks SET outcome=?, signature=?, reason=?, seconds=?,"
            " cpu_seconds=?, log=? WHERE number=?",
            (
                verdict.outcome.value,
                str(seen.signature) if seen.signature else None,
                seen.invalid or seen.unresolved or None,
                seen.seconds,
                seen.cpu_seconds,
                seen.log,
                number,
            ),
        )

    def close(self) -> None:
        self._db.close()
