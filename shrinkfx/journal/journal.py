"""The SQLite record of a run in its output folder; ``--resume`` continues from it."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from shrinkfx.errors import (
    JournalError,
    OtherVersionJournal,
    ShrinkfxError,
    StorageError,
    WorkerError,
)
from shrinkfx.failure.signature import Signature
from shrinkfx.failure.verdict import Observation, Outcome, Verdict
from shrinkfx.program.candidate import Candidate

_VERSION = 2
"""The version of the tables; a journal with another version is not read."""

_BUSY_TIMEOUT_S = 30.0
"""Seconds to wait for another process that has locked the file, such as a SQLite
shell.
"""

_TABLES = """
CREATE TABLE checks (
    number INTEGER PRIMARY KEY,
    asked_at REAL NOT NULL,
    boot TEXT NOT NULL,
    strategy TEXT NOT NULL,
    form TEXT NOT NULL,
    build TEXT NOT NULL,
    digest TEXT NOT NULL,
    candidate TEXT NOT NULL,
    operators INTEGER NOT NULL,
    outcome TEXT,
    signature TEXT,
    reason TEXT,
    seconds REAL,
    cpu_seconds REAL,
    observation TEXT,
    log TEXT
);
CREATE INDEX checks_by_digest ON checks (digest);
CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE sessions (
    number INTEGER PRIMARY KEY,
    began_at REAL NOT NULL,
    seen_at REAL NOT NULL
);
CREATE TABLE examples (
    number INTEGER PRIMARY KEY,
    asked_at REAL NOT NULL,
    boot TEXT NOT NULL,
    part TEXT NOT NULL,
    sizes TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    example TEXT
)
"""

_LATER_TABLES = """
CREATE TABLE IF NOT EXISTS spent (
    session INTEGER PRIMARY KEY,
    task TEXT NOT NULL,
    cpu_seconds TEXT NOT NULL
)
"""
"""Tables that older journals of the same version lack; both kinds of journals work."""

STOCK = "stock"
"""The build of a query if none is named: that of ``protocol.choices.Build.STOCK``."""

Row = Sequence[Any]


class Database:
    """One SQLite file: when a statement returns, all of it is on disk.

    It is not in WAL mode, which network file systems do not support.

    Args:
        only_read: write nothing, because another process may be working on the run.

    Raises:
        StorageError: any method raises it for any SQLite error.
    """

    def __init__(self, path: Path | str, *, only_read: bool = False) -> None:
        self._path = str(path)
        name = _read_only_uri(Path(path)) if only_read else path
        try:
            self._db = sqlite3.connect(
                name, _BUSY_TIMEOUT_S, isolation_level=None, uri=only_read
            )
            self._db.execute(f"PRAGMA query_only={int(only_read)}")
            self._begin(only_read=only_read)
        except sqlite3.Error as error:
            raise self._storage_error(error) from error

    def _begin(self, *, only_read: bool) -> None:
        (version,) = self._db.execute("PRAGMA user_version").fetchone()
        (count,) = self._db.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if count and version != _VERSION:
            reason = f"its tables are of version {version}, not {_VERSION}"
            advice = (
                "another version of shrinkfx wrote it: use that version, or another "
                "--out"
            )
            raise OtherVersionJournal(self._path, reason, advice)
        if only_read:
            if not count:
                raise JournalError(self._path, "the journal is empty", _DAMAGED)
            return
        self._db.execute("PRAGMA journal_mode=TRUNCATE")
        if not count:
            tables = f"{_TABLES}; PRAGMA user_version={_VERSION}"
            self._db.executescript(f"BEGIN IMMEDIATE; {tables}; END")
        self._db.executescript(_LATER_TABLES)

    def check(self) -> None:
        """Check every page now, so that damage does not stop the run hours later."""
        lines = [text for (text,) in self.read("PRAGMA quick_check(1)")]
        if lines != ["ok"]:
            raise JournalError(self._path, "; ".join(lines), _DAMAGED)

    @contextmanager
    def checked_decoding(self) -> Iterator[None]:
        """Raise JournalError if decoding rows fails, because the file is damaged."""
        try:
            yield
        except (ValueError, TypeError, LookupError, AttributeError) as error:
            reason = f"its content is invalid ({type(error).__name__}: {error})"
            raise JournalError(self._path, reason, _DAMAGED) from error

    def write(self, statement: str, row: Row = ()) -> int:
        """Execute a statement and return the number of the last inserted row."""
        try:
            return self._db.execute(statement, row).lastrowid or 0
        except sqlite3.Error as error:
            raise self._storage_error(error) from error

    def read(self, statement: str, row: Row = ()) -> list[Any]:
        try:
            return self._db.execute(statement, row).fetchall()
        except sqlite3.Error as error:
            raise self._storage_error(error) from error

    def close(self) -> None:
        """Close the file; SQLite's errors in tidying up are not reported."""
        with suppress(sqlite3.Error):  # this removes the other file
            self._db.execute("PRAGMA journal_mode=DELETE")
        self._db.close()

    def _storage_error(self, error: sqlite3.Error) -> StorageError:
        advice = _ADVICE.get(_cause(error), _OTHER)
        kind = JournalError if advice is _DAMAGED else StorageError
        return kind(self._path, str(error), advice)


def _read_only_uri(path: Path) -> str:
    """Return a URI by which SQLite opens a file to read it.

    A ``-journal`` file shows that a process is writing or has written. If that process
    was killed while it wrote, SQLite undoes that first, so it must be able to write. In
    older versions of shrinkfx, the other file was a ``-wal`` file. If there is neither,
    the file is complete, and can be opened as immutable.
    """
    mode = "immutable=1"
    if Path(f"{path}-wal").exists():
        mode = "mode=ro"
    elif Path(f"{path}-journal").exists():
        mode = "mode=rw"
    return f"{path.resolve().as_uri()}?{mode}"


def _cause(error: sqlite3.Error) -> str:
    """Return SQLite's primary error name, such as ``SQLITE_FULL``."""
    if "decode" in str(error):  # an error of Python, which has no error code
        return "SQLITE_CORRUPT"
    name = getattr(error, "sqlite_errorname", "")
    return "_".join(name.split("_")[:2])


_OTHER = "check that the folder is writable and the disk works"

_DAMAGED = (
    "the journal is damaged, so the run cannot be resumed: start a new run with "
    "another --out"
)

_IN_USE = "another process uses the file: end that process"

_ADVICE = {
    "SQLITE_FULL": "the disk is full: free some space",
    "SQLITE_BUSY": _IN_USE,
    "SQLITE_LOCKED": _IN_USE,
    "SQLITE_CORRUPT": _DAMAGED,
    "SQLITE_NOTADB": _DAMAGED,
}


def boot_id() -> str:
    """Return an identifier of this boot of the machine, or '' if there is none."""
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return ""


_TRIES = 2
"""After this many attempts that did not end, a check does not run again."""


def why_not_again(boots: list[str], now: str) -> str:
    """Return why a check that did not end must not run again, or ''.

    Args:
        boots: for each attempt that did not end, the boot of the machine at that time.
        now: the current boot.
    """
    if len(boots) >= _TRIES:
        return f"did not end {len(boots)} times"
    return (
        "the machine shut down during this check"
        if any(b != now for b in boots)
        else ""
    )


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


_TICK_S = 1.0
"""Seconds between time stamps. One second is enough, because each write waits for the
disk.
"""

LOG_CHARS = 20_000
"""Characters that are kept from the end of a log. The longest logs are those of g++,
with half a megabyte each.
"""


@dataclass(frozen=True)
class RecordedQuery:
    """A query and its verdict, as the journal holds them.

    Attributes:
        at_s: the time of the query, in seconds that the run had worked, over all
            sessions.
        operators: the number of operators of the candidate.
        candidate: the result of ``Candidate.to_json``.
        outcome: None if the check did not end.
        message: the failure, or the reason why there is no verdict.
        seen: the signature of the failure that the check showed, or None.
    """

    number: int
    at_s: float
    strategy: str
    form: str
    build: str
    digest: str
    operators: int
    candidate: Mapping[str, Any]
    outcome: Outcome | None
    message: str
    seconds: float
    seen: Signature | None


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
        build: str = STOCK,
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
        self, strategy: str, form: str, candidate: Candidate, build: str = STOCK
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
        signature = str(seen.signature) if seen.signature else None
        reason = seen.invalid or seen.unresolved or seen.stopped or None
        self.db.write(
            "UPDATE checks SET outcome=?, observation=?, log=?, signature=?, reason=?,"
            " seconds=?, cpu_seconds=? WHERE number=?",
            (
                *_columns(verdict),
                *(signature, reason, seen.seconds, seen.cpu_seconds, number),
            ),
        )

    def list_queries(self, digest: str = "") -> list[RecordedQuery]:
        """Return the queries whose candidate's digest has a prefix, the oldest first.

        The last query of a candidate holds its final verdict.

        Raises:
            JournalError: the journal's content cannot be decoded.
        """
        sessions = self.db.read(
            "SELECT began_at, seen_at FROM sessions ORDER BY number"
        )
        rows = self.db.read(
            "SELECT number, asked_at, strategy, form, build, digest, operators,"
            " candidate, outcome, coalesce(signature, reason, ''),"
            " coalesce(seconds, 0), observation"
            " FROM checks WHERE substr(digest, 1, ?) = ? ORDER BY number",
            (len(digest), digest),
        )
        with self.db.checked_decoding():
            return [_query(row, sessions) for row in rows]

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


def _columns(verdict: Verdict) -> tuple[str, str, str]:
    """Return the outcome, the observation without its log, and the log's end."""
    seen = verdict.observation
    text = json.dumps(asdict(replace(seen, log="")))
    return verdict.outcome.value, text, seen.log[-LOG_CHARS:]


def _observation(text: str | None) -> Observation:
    """Decode an observation; return an empty one if there is none."""
    return Observation() if text is None else Observation.from_line(text)


def _query(row: Row, sessions: Sequence[Row]) -> RecordedQuery:
    number, asked_at, *query, candidate, outcome, message, seconds, seen = row
    columns: list[Any] = [number, _worked_s(asked_at, sessions), *query]
    columns += json.loads(candidate), Outcome(outcome) if outcome else None
    columns += message, seconds, _observation(seen).signature
    return RecordedQuery(*columns)


def _worked_s(at: float, sessions: Sequence[Row]) -> float:
    """Return the seconds of work up to a time, without the pauses between sessions."""
    return float(sum(max(0.0, min(at, seen) - began) for began, seen in sessions))
