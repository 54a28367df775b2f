"""Answers that a search has not asked for yet, and may never: found ahead of it."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

from shrinkfx.failure.verdict import Observation, Outcome, Verdict
from shrinkfx.journal.journal import LOG_CHARS, Journal
from shrinkfx.program.candidate import Candidate
from shrinkfx.protocol.choices import Build


class Ahead:
    """What was asked ahead, in the journal of a run, in one form and build.

    Apart from the questions of the search: they are no checks of it. A search that
    goes on finds the answers here when it gets there.
    """

    def __init__(
        self, journal: Journal, form: str = "program", build: str = Build.STOCK
    ) -> None:
        self._journal = journal
        self._of = form, build

    def began(self, candidate: Candidate) -> None:
        """Write a question down before it is asked."""
        self._journal.tick()
        self._journal.db.write(
            "INSERT OR REPLACE INTO ahead (digest, form, build) VALUES (?, ?, ?)",
            (candidate.digest, *self._of),
        )

    def answered(self, candidate: Candidate, verdict: Verdict) -> None:
        self._journal.tick()
        seen = verdict.observation
        self._journal.db.write(
            "UPDATE ahead SET outcome=?, observation=?, log=?"
            " WHERE digest=? AND form=? AND build=?",
            (
                verdict.outcome.value,
                json.dumps(asdict(replace(seen, log=""))),
                seen.log[-LOG_CHARS:],
                *(candidate.digest, *self._of),
            ),
        )

    def withdrawn(self, candidate: Candidate) -> None:
        """Forget a question: it was ended, or the search has asked for its answer."""
        self._journal.db.write(
            "DELETE FROM ahead WHERE digest=? AND form=? AND build=?",
            (candidate.digest, *self._of),
        )

    def recall(self, candidate: Candidate) -> Verdict | None:
        """Fetch an answer; UNRESOLVED if there was none, and None if nobody has asked.

        What has not ended may have ended the run: it is not for asking ahead again.
        """
        rows = self._journal.db.read(
            "SELECT outcome, observation, log FROM ahead"
            " WHERE digest=? AND form=? AND build=?",
            (candidate.digest, *self._of),
        )
        for outcome, text, log in rows:
            if outcome is None:
                seen = Observation(unresolved="a speculative check did not end")
                return Verdict(Outcome.UNRESOLVED, seen)
            with self._journal.db.trusted():
                seen = Observation.from_line(text)
                return Verdict(Outcome(outcome), replace(seen, log=log))
        return None
