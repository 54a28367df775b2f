"""The progress of a run, counted in its journal."""

from __future__ import annotations

from dataclasses import dataclass

from shrinkfx.journal.database import Database


@dataclass(frozen=True)
class RunProgress:
    """The progress of a run.

    Attributes:
        checks: number of queries with a verdict.
        operators: number of operators of the smallest candidate that was reproduced, or
            None.
        examples: number of sizes that a sweep has run.
        seconds: time that all sessions have worked.
        at: time of the last record, in seconds since 1970; 0 if there is none.
    """

    checks: int
    operators: int | None
    examples: int
    seconds: float
    at: float


def read_progress(db: Database) -> RunProgress:
    ((checks, operators),) = db.read(
        "SELECT count(outcome), min(CASE outcome WHEN 'reproduced' THEN operators END)"
        " FROM checks"
    )
    ((examples,),) = db.read("SELECT count(example) FROM examples")
    ((seconds, at),) = db.read(
        "SELECT total(max(0, seen_at - began_at)), max(seen_at) FROM sessions"
    )
    return RunProgress(checks, operators, examples, seconds, at or 0.0)
