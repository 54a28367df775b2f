"""The SQLite record of a run in its output folder; ``--resume`` continues from it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from shrinkfx.errors import ShrinkfxError, StorageError, WorkerError
from shrinkfx.failure.signature import Signature
from shrinkfx.failure.verdict import Observation, Outcome, Verdict
from shrinkfx.journal.database import Database, boot_id, why_not_again
from shrinkfx.program.candidate import Candidate
from shrinkfx.protocol.choices import Build

_TICK_S = 1.0
"""Seconds between time stamps. One second is enough, because each write waits for the
disk.
"""

LOG_CHARS = 20_000
"""Characters that are kept from the end of a log. The longest logs are those of g++,
with half a megabyte each.
"""


@dataclass(frozen=True)
class StoredQuery:
    """A query as the journal holds it.

    Attributes:
        candidate: the result of ``Candidate.to_json``.
        failure: the signature of the failure that the check showed, or None.
    """

    digest: str
    form: str
    candidate: Mapping[str, Any]
    failure: Signature | None = None


class Journal:
    """Records each query before its check starts, and its verdict after the check.

    A row without an outcome is a check that did not end. The search is deterministic
    given the verdicts. So a resumed session repeats the search from the start, and the
    journal answers the queries of earlier sessions.

    Args:
        counts_time: the time of this session counts as time of the run.
        only_read: this process only reads the journal and does not continue the run.

    Attributes:
        db: the file.
        recalled: number of verdicts of earlier sessions that this session has used.
    """

    def __init__(
        self,
        path: Path | str = ":memory:",
        *,
        counts_time: bool = True,
        only_read: bool = False,
    ) -> None:
        self.db = Database(path, only_read=only_read)
        self._counts_time = counts_time
        self._boot = boot_id()
        self._session = 0
        self._ticked = 0.0
        self.recalled = 0
        self._task, self._spent = "", _nothing
        self._counted: set[int] = set()

    # --- facts that phases have found

    def note(self, name: str, value: object) -> None:
        """Store what a phase of the run has found; it must be JSON-serializable."""
        self.tick()
        row = (name, json.dumps(value))
        self.db.write("INSERT OR REPLACE INTO facts VALUES (?, ?)", row)

    def fact(self, name: str) -> Any:  # noqa: ANN401 - whatever JSON can hold
        """Return a stored fact, or None."""
        rows = self.db.read("SELECT value FROM facts WHERE name=?", (name,))
        with self.db.checked_decoding():
            return json.loads(rows[0][0]) if rows else None

    def get_or_compute(self, name: str, find: Callable[[], Any]) -> Any:  # noqa: ANN401
        """Return the fact of an earlier session, or compute and store it."""
        known = self.fact(name)
        if known is None:
            known = find()
            self.note(name, known)
        return known

    # --- working time

    def tick(self) -> None:
        """Record that the run is working; time without such records is not counted."""
        if not self._counts_time:
            return
        now = time.time()
        if not self._session:
            insert = "INSERT INTO sessions (began_at, seen_at) VALUES (?, ?)"
            self._session = self.db.write(insert, (now, now))
        elif now - self._ticked >= _TICK_S:
            row = (now, self._session)
            self.db.write("UPDATE sessions SET seen_at=? WHERE number=?", row)
        else:
            return
        self._note_spent()
        self._ticked = now

    def seconds_before(self) -> float:
        """Return the seconds that earlier sessions have worked."""
        total = "SELECT total(max(0, seen_at - began_at)) FROM sessions WHERE number<>?"
        return float(self.db.read(total, (self._session,))[0][0])

    # --- CPU time

    def follow(self, task: str, spent: Callable[[], Mapping[str, float]]) -> None:
        """Record the session's CPU time with each tick from now on.

        Args:
            task: the name of the task, because several tasks may share a folder.
            spent: returns the CPU-seconds of this session by part of the run.
        """
        self._task, self._spent = task, spent

    def _note_spent(self) -> None:
        if spent := self._spent():
            row = (self._session, self._task, json.dumps(spent))
            self.db.write("INSERT OR REPLACE INTO spent VALUES (?, ?, ?)", row)

    def spent_before(self) -> dict[str, float]:
        """Return the CPU-seconds of earlier sessions by part of the run.

        The CPU time of another task in the same folder is one part, named after that
        task.
        """
        ask = "SELECT task, cpu_seconds FROM spent WHERE session<>?"
        total: dict[str, float] = {}
        with self.db.checked_decoding():
            for task, text in self.db.read(ask, (self._session,)):
                for part, seconds in json.loads(text).items():
                    name = part if task == self._task else task
                    total[name] = total.get(name, 0.0) + seconds
        return total

    # --- queries and verdicts

    def recall(
        self,
        candidate: Candidate,
        form: str,
        build: str = Build.STOCK,
        *,
        again: bool = False,
    ) -> Verdict | None:
        """Return the stored verdict of a query, or None if its check has to run.

        A check during which the machine shut down may shut it down again, and a check
        that did not end twice will not end: both return UNRESOLVED.

        Args:
            again: return None for every query without a verdict, so that its check runs
                again.
        """
        rows = self.db.read(
            "SELECT outcome, observation, boot, number FROM checks"
            " WHERE digest=? AND form=? AND build=? ORDER BY number",
            (candidate.digest, form, build),
        )
        for outcome, text, _, number in rows:
            if outcome is not None:
                with self.db.checked_decoding():
                    verdict = Verdict(Outcome(outcome), _observation(text))
                self._count(number)
                return verdict
        why = why_not_again([boot for _, _, boot, _ in rows], self._boot)
        if why and not again:
            return Verdict(Outcome.UNRESOLVED, Observation(unresolved=why))
        return None

    def _count(self, number: int) -> None:
        """Count a recalled verdict of an earlier session, once."""
        if number not in self._counted:
            self._counted.add(number)
            self.recalled += 1

    def ask(
        self,
        strategy: str,
        form: str,
        candidate: Candidate,
        build: str,
        check: Callable[[Candidate], Verdict],
    ) -> Verdict:
        """Run the check of a query, and record the query and its verdict.

        An error that stops the run is not the candidate's, so the query is deleted
        then.
        """
        number = self.record_query(strategy, form, candidate, build)
        try:
            verdict = check(candidate)
        except WorkerError:
            raise  # keep the row: the candidate may have killed the worker
        except (KeyboardInterrupt, ShrinkfxError, OSError):
            with suppress(StorageError):
                self.db.write("DELETE FROM checks WHERE number=?", (number,))
            raise
        self.record_verdict(number, verdict)
        return verdict

    def record_query(
        self, strategy: str, form: str, candidate: Candidate, build: str = Build.STOCK
    ) -> int:
        """Record a query and return its row number."""
        self.tick()
        row = (
            time.time(),
            self._boot,
            strategy,
            form,
            build,
            candidate.digest,
            json.dumps(candidate.to_json()),
            candidate.cost[0],
        )
        number = self.db.write(
            "INSERT INTO checks"
            " (asked_at, boot, strategy, form, build, digest, candidate, operators)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            row,
        )
        self._counted.add(number)
        return number

    def record_verdict(self, number: int, verdict: Verdict) -> None:
        self.tick()
        seen = verdict.observation
        self.db.write(
            "UPDATE checks SET outcome=?, signature=?, reason=?, seconds=?,"
            " cpu_seconds=?, observation=?, log=? WHERE number=?",
            (
                verdict.outcome.value,
                str(seen.signature) if seen.signature else None,
                seen.invalid or seen.unresolved or seen.stopped or None,
                seen.seconds,
                seen.cpu_seconds,
                json.dumps(asdict(replace(seen, log=""))),
                seen.log[-LOG_CHARS:],
                number,
            ),
        )

    def find(self, digest: str) -> list[StoredQuery]:
        """Return the queries whose candidate's digest has a prefix, the oldest first.

        The last row of a candidate holds its final verdict.
        """
        rows = self.db.read(
            "SELECT digest, form, candidate, observation FROM checks"
            " WHERE substr(digest, 1, ?) = ? ORDER BY number",
            (len(digest), digest),
        )
        with self.db.checked_decoding():
            return [
                StoredQuery(d, form, json.loads(text), _observation(seen).signature)
                for d, form, text, seen in rows
            ]

    def is_empty(self) -> bool:
        """Return whether the journal holds no baseline, query or sweep example."""
        known = "SELECT 1 FROM checks UNION SELECT 1 FROM examples"
        return self.fact("baseline") is None and not self.db.read(known)

    def close(self) -> None:
        """Record the session's CPU time, if the disk has space, and close the file."""
        if self._session:
            with suppress(StorageError):
                self._note_spent()
        self.db.close()


def _nothing() -> Mapping[str, float]:
    """Return no CPU time, for a session that does not work on the run."""
    return {}


def _observation(text: str | None) -> Observation:
    """Decode an observation; return an empty one if there is none."""
    return Observation() if text is None else Observation.from_line(text)
