"""A SQLite file whose errors tell the user what to do next."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from shrinkfx.errors import JournalError, OtherVersionJournal, StorageError
from shrinkfx.wording import Flag, MessageText

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
);
CREATE TABLE IF NOT EXISTS ahead (
    digest TEXT NOT NULL,
    form TEXT NOT NULL,
    build TEXT NOT NULL,
    outcome TEXT,
    observation TEXT,
    log TEXT,
    PRIMARY KEY (digest, form, build)
)
"""
"""Tables that older journals of the same version lack; both kinds of journals work."""

Row = Sequence[Any]


class Database:
    """One SQLite file in WAL mode: when a statement returns, all of it is on disk.

    Args:
        only_read: change neither the file nor its folder, because another process may
            be working on the run.

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
            self._begin(only_read=only_read)
        except sqlite3.Error as error:
            raise self._storage_error(error) from error

    def _begin(self, *, only_read: bool) -> None:
        (version,) = self._db.execute("PRAGMA user_version").fetchone()
        (count,) = self._db.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if count and version != _VERSION:
            reason = f"its tables are of version {version}, not {_VERSION}"
            wrote = (
                "another version of shrinkfx wrote it: use that version, or another "
            )
            advice = MessageText(wrote, Flag("--out"))
            raise OtherVersionJournal(self._path, reason, advice)
        if only_read:
            if not count:
                raise JournalError(self._path, "the journal is empty", _DAMAGED)
            return
        self._db.execute("PRAGMA journal_mode=WAL")
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
        self._db.close()

    def _storage_error(self, error: sqlite3.Error) -> StorageError:
        advice = _ADVICE.get(_cause(error), _OTHER)
        kind = JournalError if advice is _DAMAGED else StorageError
        return kind(self._path, str(error), advice)


def _read_only_uri(path: Path) -> str:
    """Return a URI by which SQLite opens a file without creating others next to it.

    Without a ``-wal`` file no process is writing, so the file is complete and can be
    opened as immutable.
    """
    is_unused = not path.with_name(f"{path.name}-wal").exists()
    return f"{path.resolve().as_uri()}?{'immutable=1' if is_unused else 'mode=ro'}"


def _cause(error: sqlite3.Error) -> str:
    """Return SQLite's primary error name, such as ``SQLITE_FULL``."""
    if "decode" in str(error):  # an error of Python, which has no error code
        return "SQLITE_CORRUPT"
    name = getattr(error, "sqlite_errorname", "")
    return "_".join(name.split("_")[:2])


_OTHER = MessageText("check that the folder is writable and the disk works")

_DAMAGED = MessageText(
    "the journal is damaged, so the run cannot be resumed: start a new run with "
    "another ",
    Flag("--out"),
)

_IN_USE = MessageText("another process uses the file: end that process")

_ADVICE = {
    "SQLITE_FULL": MessageText("the disk is full: free some space"),
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
