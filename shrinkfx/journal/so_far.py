"""How far a run has come, counted in its journal."""

from __future__ import annotations

from dataclasses import dataclass

from shrinkfx.journal.database import Database


@dataclass(frozen=True)
class SoFar:
    """What a journal adds up to.

    Attributes:
        checks: questions of a search that were answered.
        operators: of the smallest candidate that fails, or None.
        examples: sizes that a sweep has run.
        seconds: that its sessions have worked.
        at: when the last of them was heard of, in seconds since 1970; 0 if never.
    """

    checks: int
    operators: int | None
    examples: int
    seconds: float
    at: float


def so_far(db: Database) -> SoFar:
    ((checks, operators),) = db.read(
        "SELECT count(outcome), min(CASE outcome WHEN 'reproduced' THEN operators END)"
        " FROM checks"
    )
    ((examples,),) = db.read("SELECT count(example) FROM examples")
    ((seconds, at),) = db.read(
        "SELECT total(max(0, seen_at - began_at)), max(seen_at) FROM sessions"
    )
    return SoFar(checks, operators, examples, seconds, at or 0.0)
