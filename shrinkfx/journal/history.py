"""All queries of a run in their order, for the report and for analysis."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from shrinkfx.failure.signature import Signature
from shrinkfx.failure.verdict import Observation, Outcome
from shrinkfx.journal.database import Row
from shrinkfx.journal.journal import Journal


@dataclass(frozen=True)
class RecordedQuery:
    """A query and its verdict.

    Attributes:
        at_s: the time of the query, in seconds that the run had worked, over all
            sessions.
        operators: the number of operators of the candidate; ``keep`` names them.
        outcome: None if the check did not end.
        message: the failure, or the reason why there is no verdict.
        seen: the signature of the failure, or None.
    """

    number: int
    at_s: float
    strategy: str
    form: str
    build: str
    digest: str
    operators: int
    keep: tuple[str, ...]
    outcome: Outcome | None
    message: str
    seconds: float
    seen: Signature | None


def list_queries(journal: Journal) -> list[RecordedQuery]:
    """Return all queries of the search, in their order.

    Raises:
        JournalError: the journal's content cannot be decoded.
    """
    sessions = journal.db.read("SELECT began_at, seen_at FROM sessions ORDER BY number")
    rows = journal.db.read(
        "SELECT number, asked_at, strategy, form, build, digest, operators, candidate,"
        " outcome, coalesce(signature, reason, ''), coalesce(seconds, 0), observation"
        " FROM checks ORDER BY number"
    )
    with journal.db.checked_decoding():
        return [_question(row, sessions) for row in rows]


def _question(row: Row, sessions: Sequence[Row]) -> RecordedQuery:
    number, started, *query, operators, candidate, outcome, message, seconds, seen = row
    strategy, form, build, digest = query
    return RecordedQuery(
        number,
        _worked_s(started, sessions),
        strategy,
        form,
        build,
        digest,
        operators,
        tuple(json.loads(candidate)["keep"]),
        Outcome(outcome) if outcome else None,
        message,
        seconds,
        Observation.from_line(seen).signature if seen else None,
    )


def _worked_s(at: float, sessions: Sequence[Row]) -> float:
    """Return the seconds of work up to a time, without the pauses between sessions."""
    return float(sum(max(0.0, min(at, seen) - began) for began, seen in sessions))
