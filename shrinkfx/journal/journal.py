"""A SQLite record of a run, in its output folder: what ``--resume`` goes by."""

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
"""To the second will do: each write waits for the disk."""

LOG_CHARS = 20_000
"""Of the end of a log. The longest are g++'s, half a megabyte each."""


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

    A row without an outcome is a check that did not end. The search is the same each
    time as long as its answers are: so it begins again, and what it has asked before
    is answered from here.

    Args:
        counts_time: whoever works on the run here does so in its minutes.
        only_read: whoever looks at it here does not work on the run.

    Attributes:
        db: the file.
        recalled: answers that were asked for in an earlier session.
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

    # --- what a run knows

    def note(self, name: str, value: object) -> None:
        """Write down what a part of the run has found, as JSON can hold it."""
        self.tick()
        row = (name, json.dumps(value))
        self.db.write("INSERT OR REPLACE INTO facts VALUES (?, ?)", row)

    def fact(self, name: str) -> Any:  # noqa: ANN401 - whatever JSON can hold
        """Fetch what was noted, or None."""
        rows = self.db.read("SELECT value FROM facts WHERE name=?", (name,))
        with self.db.trusted():
            return json.loads(rows[0][0]) if rows else None

    def once(self, name: str, find: Callable[[], Any]) -> Any:  # noqa: ANN401
        """Fetch what an earlier session has found, or find it and note it."""
        known = self.fact(name)
        if known is None:
            known = find()
            self.note(name, known)
        return known

    # --- how long it has worked

    def tick(self) -> None:
        """Note that the run is alive: time that nothing tells of is not counted."""
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
        """Add up how long earlier sessions have worked."""
        total = "SELECT total(max(0, seen_at - began_at)) FROM sessions WHERE number<>?"
        return float(self.db.read(total, (self._session,))[0][0])

    # --- what it has used

    def follow(self, task: str, spent: Callable[[], Mapping[str, float]]) -> None:
        """Write down what is used from now on, with each tick.

        Args:
            task: of which there may be another one in the same folder.
            spent: tells what this session has used, in CPU-seconds by part.
        """
        self._task, self._spent = task, spent

    def _note_spent(self) -> None:
        if spent := self._spent():
            row = (self._session, self._task, json.dumps(spent))
            self.db.write("INSERT OR REPLACE INTO spent VALUES (?, ?, ?)", row)

    def spent_before(self) -> dict[str, float]:
        """Add up what earlier sessions have used, by part of the run.

        What another task has used is a part by the name of that.
        """
        ask = "SELECT task, cpu_seconds FROM spent WHERE session<>?"
        total: dict[str, float] = {}
        with self.db.trusted():
            for task, text in self.db.read(ask, (self._session,)):
                for part, seconds in json.loads(text).items():
                    name = part if task == self._task else task
                    total[name] = total.get(name, 0.0) + seconds
        return total

    # --- questions and answers

    def recall(
        self,
        candidate: Candidate,
        form: str,
        build: str = Build.STOCK,
        *,
        again: bool = False,
    ) -> Verdict | None:
        """Fetch an answer, or None if the question is still to be asked.

        One that went down with the machine may take it down again, and one that did
        not end twice will not end: neither is asked again.

        Args:
            again: all the same, ask each question that has no answer.
        """
        rows = self.db.read(
            "SELECT outcome, observation, boot, number FROM checks"
            " WHERE digest=? AND form=? AND build=? ORDER BY number",
            (candidate.digest, form, build),
        )
        for outcome, text, _, number in rows:
            if outcome is not None:
                with self.db.trusted():
                    verdict = Verdict(Outcome(outcome), _observation(text))
                self._count(number)
                return verdict
        why = why_not_again([boot for _, _, boot, _ in rows], self._boot)
        if why and not again:
            return Verdict(Outcome.UNRESOLVED, Observation(unresolved=why))
        return None

    def _count(self, number: int) -> None:
        """Count an earlier session's answer once."""
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
        """Have a question answered, and write down both.

        What stops the run is no fault of the candidate's: then it was not asked.
        """
        number = self.asked(strategy, form, candidate, build)
        try:
            verdict = check(candidate)
        except WorkerError:
            raise  # which the candidate may have killed
        except (KeyboardInterrupt, ShrinkfxError, OSError):
            with suppress(StorageError):
                self.db.write("DELETE FROM checks WHERE number=?", (number,))
            raise
        self.answered(number, verdict)
        return verdict

    def asked(
        self, strategy: str, form: str, candidate: Candidate, build: str = Build.STOCK
    ) -> int:
        """Note a question and return its number."""
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

    def answered(self, number: int, verdict: Verdict) -> None:
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

    def find(self, digest: str) -> list[Asked]:
        """List the questions about candidates whose digest begins so.

        The last word on a candidate is in its last row.
        """
        rows = self.db.read(
            "SELECT digest, form, candidate, observation FROM checks"
            " WHERE substr(digest, 1, ?) = ? ORDER BY number",
            (len(digest), digest),
        )
        with self.db.trusted():
            return [
                Asked(d, form, json.loads(text), _observation(seen).signature)
                for d, form, text, seen in rows
            ]

    def is_empty(self) -> bool:
        """Tell whether nothing is known that would have to be found out again."""
        known = "SELECT 1 FROM checks UNION SELECT 1 FROM examples"
        return self.fact("baseline") is None and not self.db.read(known)

    def close(self) -> None:
        """Note what was used to the last, if there is space for that, and end."""
        if self._session:
            with suppress(StorageError):
                self._note_spent()
        self.db.close()


def _nothing() -> Mapping[str, float]:
    """Say what a session has used that does no work."""
    return {}


def _observation(text: str | None) -> Observation:
    """Read an observation back; an empty one if there is none."""
    return Observation() if text is None else Observation.from_line(text)
