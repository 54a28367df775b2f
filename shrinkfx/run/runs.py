"""What the runs in a folder have come to, as their journals and summaries tell."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

from shrinkfx.errors import (
    ForeignJournal,
    JournalError,
    StorageError,
    UsageError,
)
from shrinkfx.folder_lock import LOCK, is_taken
from shrinkfx.journal.journal import Journal
from shrinkfx.journal.so_far import so_far
from shrinkfx.report.summary import SUMMARY
from shrinkfx.run.folder import JOURNAL
from shrinkfx.wording import Flag, Words


class State(StrEnum):
    """What has become of a run that has not come to its end, or of its journal."""

    AT_WORK = "at work"
    STOPPED = "stopped"
    """By its budget, or Ctrl-C: its best so far is there."""
    KILLED = "killed"
    BROKEN_OFF = "broken off"
    """By an error, or Ctrl-C before there was a repro."""
    DAMAGED = "damaged"
    FOREIGN = "foreign"
    """Another version of shrinkfx has written its journal."""
    UNREADABLE = "unreadable"
    CAPTURED = "captured"
    """A script has run, and none of its programs is being reduced."""
    DOES_NOT_FAIL = "does not fail"
    """The program of a dump, which is kept; there is nothing to go on with."""


GOES_ON = (State.STOPPED, State.KILLED, State.BROKEN_OFF, State.CAPTURED)
"""Those that ``--resume`` takes."""

_OF_SWEEPS = {0: "passes", 3: "missed", 6: "found"}
"""What a sweep has come to, by its exit code."""


@dataclass(frozen=True)
class Run:
    """What a folder tells of its run; None is not known.

    Attributes:
        status: a ``State``, or what a run has come to that is over.
        operators: of the program, and of the smallest that fails so far.
        verified: how often the repro was run, and how often it failed.
        checks: of a reduction; or the sizes that a sweep has run.
        at: when it was last heard of, in seconds since 1970.
        problem: what is wrong with its journal, or ''.
    """

    folder: Path
    status: str
    program: str = ""
    kind: str = ""
    operators: tuple[int | None, int | None] = (None, None)
    verified: tuple[int, int] | None = None
    checks: int | None = None
    seconds: float | None = None
    at: float = 0.0
    problem: str = ""

    @property
    def may_go_on(self) -> bool:
        return self.status in GOES_ON


class Capture(Protocol):
    """What a script or a dump has left, of which there is no run."""

    @property
    def folder(self) -> Path: ...
    @property
    def script(self) -> str: ...
    @property
    def at(self) -> float: ...
    @property
    def has_ended(self) -> bool: ...
    @property
    def does_not_fail(self) -> bool: ...


def list_runs(
    folder: Path, captured: Callable[[Path], Capture | None] = lambda _: None
) -> list[Run]:
    """List the runs in a folder, or the one that it is of, the last one last.

    Args:
        captured: finds what a script or a dump has left in a folder without a journal.

    Raises:
        UsageError: there is no such folder, or it cannot be read.
    """
    try:
        inside = sorted(path for path in folder.iterdir() if path.is_dir())
    except OSError as error:
        asked = Flag("--list", str(folder))
        raise UsageError(asked, f": {error.strerror}\n", _WHERE) from error
    found = []
    for path in (folder, *inside):
        if os.path.isfile(path / JOURNAL):
            found.append(_run_in(path))
        elif (capture := captured(path)) is not None:
            found.append(_of_capture(capture))
    return sorted(found, key=lambda run: run.at)


def _of_capture(capture: Capture) -> Run:
    ended = State.CAPTURED if capture.has_ended else State.UNREADABLE
    if capture.does_not_fail:
        ended = State.DOES_NOT_FAIL
    state = State.AT_WORK if is_taken(capture.folder) else ended
    why = "" if state != State.UNREADABLE else _KILLED_IN_CAPTURE
    return Run(capture.folder, state, capture.script, at=capture.at, problem=why)


_KILLED_IN_CAPTURE = "killed while the script ran; run the capture again"


_WHERE = Words(
    "runs are stored in shrinkfx-out, in the folder where you started them, or in "
    "their ",
    Flag("--out"),
    "; list another folder with shrinkfx --list FOLDER. To start a run: shrinkfx "
    "MODEL.pt2",
)


def _run_in(folder: Path) -> Run:
    try:
        with closing(Journal(folder / JOURNAL, only_read=True)) as journal:
            run = _told(folder, journal)
    except ForeignJournal as error:
        return _unread(folder, State.FOREIGN, error)
    except JournalError as error:
        return _unread(folder, State.DAMAGED, error)
    except StorageError as error:
        return _unread(folder, State.UNREADABLE, error)
    over = run.status not in {*State} or run.status == State.STOPPED
    return _with_summary(run) if over else run


def _unread(folder: Path, state: State, error: StorageError) -> Run:
    state = State.AT_WORK if is_taken(folder) else state
    at = (folder / JOURNAL).stat().st_mtime
    return Run(folder, state, at=at, problem=f"{error.reason}; {error.advice}")


def _told(folder: Path, journal: Journal) -> Run:
    """Say what a journal tells.

    Raises:
        JournalError: it is damaged.
    """
    run = journal.fact("run")
    if run is None:  # it had not begun
        run = {"options": {"model": "", "sweeping": None}}
    known = journal.fact("baseline") or {}
    found = so_far(journal.db)
    with journal.db.trusted():
        before = known["before"]["operators"] if known else None
        return Run(
            folder,
            _status(folder, journal),
            run["options"].get("name") or Path(run["options"]["model"]).name,
            _kind(known, journal.fact("unchanged"), sweeps=run["options"]["sweeping"]),
            (before, found.operators),
            checks=found.checks or found.examples,
            seconds=found.seconds,
            at=found.at or (folder / JOURNAL).stat().st_mtime,
        )


def _kind(known: Any, unchanged: Any, *, sweeps: object) -> str:  # noqa: ANN401 - JSON
    """Name the kind of failure that is reduced, as soon as it is known."""
    seen = known or (unchanged or {}).get("base")
    if seen:
        return str(seen["target"]["kind"])
    return "sweep" if sweeps else ""


def _status(folder: Path, journal: Journal) -> str:
    if finished := journal.fact("finished"):
        said: str = finished["said"].partition(":")[0]
        of_sweep = not said.isalpha()
        return _OF_SWEEPS.get(finished["exit_code"], "over") if of_sweep else said
    if journal.fact("stopped"):
        return State.STOPPED
    if is_taken(folder):  # of what is over, something is asked
        return State.AT_WORK
    # Whoever leaves takes the lock away, whatever ends it but a kill.
    return State.KILLED if (folder / LOCK).exists() else State.BROKEN_OFF


def _with_summary(run: Run) -> Run:
    """Add what is in ``summary.json`` of a run that is over, if that can be read."""
    try:
        told = json.loads((run.folder / SUMMARY).read_text(encoding="utf-8"))
        return replace(
            run,
            kind=told["kind"],
            operators=(told["operators"]["before"], told["operators"]["after"]),
            verified=(told["verified"]["runs"], told["verified"]["failed"]),
            checks=told["checks"]["total"],
            seconds=told["seconds"],
        )
    except (OSError, ValueError, LookupError, TypeError):
        return run
