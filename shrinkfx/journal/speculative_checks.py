"""Verdicts of speculative checks, which run before the search queries them."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

from shrinkfx.failure.verdict import Observation, Outcome, Verdict
from shrinkfx.journal.journal import LOG_CHARS, Journal
from shrinkfx.program.candidate import Candidate
from shrinkfx.protocol.choices import Build


class SpeculativeChecks:
    """The speculative checks in the journal of a run, for one graph form and one build.

    They are stored in a table of their own, because they do not count as checks of the
    search. A resumed search finds their verdicts here when it gets to the same query.
    """

    def __init__(
        self, journal: Journal, form: str = "program", build: str = Build.STOCK
    ) -> None:
        self._journal = journal
        self._key = form, build

    def record_start(self, candidate: Candidate) -> None:
        """Write down a speculative query before its check starts."""
        self._journal.tick()
        self._journal.db.write(
            "INSERT OR REPLACE INTO ahead (digest, form, build) VALUES (?, ?, ?)",
            (candidate.digest, *self._key),
        )

    def record_verdict(self, candidate: Candidate, verdict: Verdict) -> None:
        self._journal.tick()
        seen = verdict.observation
        self._journal.db.write(
            "UPDATE ahead SET outcome=?, observation=?, log=?"
            " WHERE digest=? AND form=? AND build=?",
            (
                verdict.outcome.value,
                json.dumps(asdict(replace(seen, log=""))),
                seen.log[-LOG_CHARS:],
                *(candidate.digest, *self._key),
            ),
        )

    def delete_query(self, candidate: Candidate) -> None:
        """Delete a query that was stopped, or whose verdict the search now needs."""
        self._journal.db.write(
            "DELETE FROM ahead WHERE digest=? AND form=? AND build=?",
            (candidate.digest, *self._key),
        )

    def recall(self, candidate: Candidate) -> Verdict | None:
        """Return a stored verdict, or None if the candidate was never queried ahead.

        The verdict is UNRESOLVED if the check did not end. Such a check may have killed
        the run, so it must not run ahead of the search again.
        """
        rows = self._journal.db.read(
            "SELECT outcome, observation, log FROM ahead"
            " WHERE digest=? AND form=? AND build=?",
            (candidate.digest, *self._key),
        )
        for outcome, text, log in rows:
            if outcome is None:
                seen = Observation(unresolved="a speculative check did not end")
                return Verdict(Outcome.UNRESOLVED, seen)
            with self._journal.db.checked_decoding():
                seen = Observation.from_line(text)
                return Verdict(Outcome(outcome), replace(seen, log=log))
        return None
