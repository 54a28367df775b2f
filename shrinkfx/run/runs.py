"""List the runs in a folder with their outcomes, from their journals and summaries.

Read the outcome of one finished run as a ``Reduction``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

from shrinkfx.errors import (
    JournalError,
    OtherVersionJournal,
    StorageError,
    UsageError,
)
from shrinkfx.failure.signature import Signature
from shrinkfx.findings.record import EXPLAIN, Explanation
from shrinkfx.findings.words import explanation_lines
from shrinkfx.journal.journal import Journal
from shrinkfx.journal.run_progress import read_progress
from shrinkfx.options.options import Options, Reduction
from shrinkfx.program.candidate import Candidate
from shrinkfx.program.skeleton import Skeleton
from shrinkfx.protocol.record import read_older
from shrinkfx.report.issue.from_model import ModelRemains
from shrinkfx.report.issue.renaming import use_repro_names
from shrinkfx.report.issue.text import ISSUE
from shrinkfx.report.page.record import REPORT
from shrinkfx.report.summary import SUMMARY
from shrinkfx.run.folder import JOURNAL, PROGRAM, RESULT, require_journal
from shrinkfx.system.folder_lock import LOCK, is_folder_locked
from shrinkfx.system.output_folder import CAPTURE, moved_file_finder
from shrinkfx.wording import Flag, MessageText


class State(StrEnum):
    """The state of a run that has not finished, or of its journal."""

    AT_WORK = "at work"
    STOPPED = "stopped"
    """By its budget or Ctrl-C: the smallest program so far is written."""
    KILLED = "killed"
    BROKEN_OFF = "broken off"
    """By an error, or by Ctrl-C before there was a repro."""
    DAMAGED = "damaged"
    FOREIGN = "foreign"
    """Another version of shrinkfx wrote its journal."""
    UNREADABLE = "unreadable"
    CAPTURED = "captured"
    """A script has run, and none of its programs was reduced yet."""
    DOES_NOT_FAIL = "does not fail"
    """The folder keeps the program of a dump, which does not fail."""


RESUMABLE = (State.STOPPED, State.KILLED, State.BROKEN_OFF, State.CAPTURED)
"""States of runs that ``--resume`` accepts."""

_SWEEP_STATUS = {0: "passes", 3: "missed", 6: "found"}
"""The status of a finished sweep, by its exit code."""


@dataclass(frozen=True)
class Run:
    """The state of the run in a folder; unknown fields are None.

    Attributes:
        status: a ``State``, or the outcome of a finished run.
        operators: of the input program, and of the smallest program that fails so far.
        verified: how often the repro was run, and how often it failed.
        checks: number of checks of a reduction, or of sizes that a sweep has run.
        at: time of the last record, in seconds since 1970.
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
        return self.status in RESUMABLE


class Capture(Protocol):
    """The capture of a script or a dump that has not become a run."""

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
    """List the runs in a folder, or the run of the folder itself, the latest one last.

    Args:
        captured: finds the capture of a script or a dump in a folder without a journal.

    Raises:
        UsageError: the folder does not exist, or cannot be read.
    """
    try:
        inside = sorted(path for path in folder.iterdir() if path.is_dir())
    except OSError as error:
        flag = Flag("--list", str(folder))
        raise UsageError(flag, f": {error.strerror}\n", _WHERE) from error
    runs = []
    for path in (folder, *inside):
        if os.path.isfile(path / JOURNAL):
            runs.append(_run_in(path))
        elif (capture := captured(path)) is not None:
            runs.append(_of_capture(capture))
    return sorted(runs, key=lambda run: run.at)


def _of_capture(capture: Capture) -> Run:
    ended_as = State.CAPTURED if capture.has_ended else State.UNREADABLE
    if capture.does_not_fail:
        ended_as = State.DOES_NOT_FAIL
    state = State.AT_WORK if is_folder_locked(capture.folder) else ended_as
    why = "" if state != State.UNREADABLE else _KILLED_IN_CAPTURE
    return Run(capture.folder, state, capture.script, at=capture.at, problem=why)


_KILLED_IN_CAPTURE = "killed while the script ran; run the capture again"


_WHERE = MessageText(
    "runs are stored in shrinkfx-out, in the folder where you started them, or in "
    "their ",
    Flag("--out"),
    "; list another folder with shrinkfx --list FOLDER. To start a run: shrinkfx "
    "MODEL.pt2",
)


def _run_in(folder: Path) -> Run:
    try:
        with closing(Journal(folder / JOURNAL, only_read=True)) as journal:
            run = _read_journal_state(folder, journal)
    except StorageError as error:
        state = _STATES.get(type(error), State.UNREADABLE)
        state = State.AT_WORK if is_folder_locked(folder) else state
        at = (folder / JOURNAL).stat().st_mtime
        return Run(folder, state, at=at, problem=f"{error.reason}; {error.advice}")
    over = run.status not in {*State} or run.status == State.STOPPED
    return _with_summary(run) if over else run


_STATES: Mapping[type[StorageError], State] = {
    OtherVersionJournal: State.FOREIGN,
    JournalError: State.DAMAGED,
}
"""States of runs whose journal cannot be read, by the error."""


def _read_journal_state(folder: Path, journal: Journal) -> Run:
    """Return the state of a run from its journal.

    Raises:
        JournalError: the journal is damaged.
    """
    run = journal.fact("run")
    if run is None:  # the run was killed before it began
        run = {"options": {"model": "", "sweeping": None}}
    known = journal.fact("baseline") or {}
    progress = read_progress(journal.db)
    with journal.db.checked_decoding():
        before = known["before"]["operators"] if known else None
        return Run(
            folder,
            _status(folder, journal),
            run["options"].get("name") or Path(run["options"]["model"]).name,
            _kind(known, journal.fact("unchanged"), sweeps=run["options"]["sweeping"]),
            (before, progress.operators),
            checks=progress.checks or progress.examples,
            seconds=progress.seconds,
            at=progress.at or (folder / JOURNAL).stat().st_mtime,
        )


def _kind(known: Any, unchanged: Any, *, sweeps: object) -> str:  # noqa: ANN401 - JSON
    """Return the kind of failure that the run reduces; '' if it is not known yet."""
    seen = known or (unchanged or {}).get("base")
    if seen:
        return str(seen["target"]["kind"])
    return "sweep" if sweeps else ""


def _status(folder: Path, journal: Journal) -> str:
    if finished := journal.fact("finished"):
        status: str = finished["said"].partition(":")[0]
        of_sweep = not status.isalpha()
        return _SWEEP_STATUS.get(finished["exit_code"], "over") if of_sweep else status
    if journal.fact("stopped"):
        return State.STOPPED
    if is_folder_locked(folder):  # a finished run has returned above, even if in use
        return State.AT_WORK
    # Every process removes its lock when it ends, except if it is killed.
    return State.KILLED if (folder / LOCK).exists() else State.BROKEN_OFF


def _with_summary(run: Run) -> Run:
    """Add the facts of ``summary.json`` to a run that has ended, if it can be read."""
    try:
        summary = json.loads((run.folder / SUMMARY).read_text(encoding="utf-8"))
        return replace(
            run,
            kind=summary["kind"],
            operators=(summary["operators"]["before"], summary["operators"]["after"]),
            verified=(summary["verified"]["runs"], summary["verified"]["failed"]),
            checks=summary["checks"]["total"],
            seconds=summary["seconds"],
        )
    except (OSError, ValueError, LookupError, TypeError):
        return run


@dataclass(frozen=True)
class Past:
    """The outcome of a finished run.

    Attributes:
        came: the reduction; None if there was none, or if it cannot be read.
        again: the input program, or the capture that holds it, to start another run.
    """

    came: Reduction | None
    again: Path


def read_finished_run(folder: Path) -> Past:
    """Read the outcome of the run in a folder, without changing the folder.

    Raises:
        UsageError: the folder holds no run, or the run cannot be read.
    """
    require_journal(folder, "--out")
    with closing(Journal(folder / JOURNAL, only_read=True)) as journal:
        run = journal.fact("run")
        if run is None:
            raise UsageError(f"{folder}: the run was killed before it started")
        with journal.db.checked_decoding():
            options = Options.from_json(run["options"]).with_files(
                moved_file_finder(folder)
            )
        try:
            reduction = _reduction(folder, journal, anonymous=options.anonymous)
        except (OSError, ValueError, TypeError, LookupError, AttributeError):
            reduction = None  # a file is missing, or was edited by hand
    captured = options.model.parent.name == CAPTURE
    return Past(reduction, folder / CAPTURE if captured else options.model)


def _reduction(folder: Path, journal: Journal, *, anonymous: bool) -> Reduction | None:
    result, program = journal.fact(RESULT), journal.fact(PROGRAM)
    if result is None or program is None:
        return None
    summary = json.loads((folder / SUMMARY).read_text(encoding="utf-8"))
    target = Signature.from_json(summary["signature"])
    seen = Signature.from_json(result["seen"]) if result["seen"] else target
    operators, verified = summary["operators"], summary["verified"]
    pages, remains = summary["guard_pages"] or {}, summary.get("left_of_model", {})
    explanation = read_explanation(folder)
    if not anonymous:
        new = result.get("renamed", {})
        explanation = use_repro_names(explanation, new, models_too=True)
    return Reduction(
        status=summary["status"],
        candidate=Candidate.from_json(Skeleton.from_json(program), result["candidate"]),
        signature=target,
        seen=seen,
        minimal=summary["minimal"],
        operators=(operators["before"], operators["after"]),
        checks=summary["checks"]["total"],
        seconds=summary["seconds"],
        verified=(verified["runs"], verified["failed"]),
        repro=folder / summary["files"][0],
        summary=summary,
        cause=explanation.cause,
        cause_lines=explanation_lines(explanation, seen),
        report=_there(folder / REPORT),
        issue=_there(folder / ISSUE),
        left_of_model=read_older(ModelRemains, remains).in_words(),
        shows_alone=not (
            pages.get("repro_needs_them") or summary.get("interpreted_for")
        ),
    )


def read_explanation(folder: Path) -> Explanation:
    """Read the explanation of a run; return an empty one if there is none."""
    path = folder / EXPLAIN
    if not path.is_file():
        return Explanation()
    return read_older(Explanation, json.loads(path.read_text(encoding="utf-8")))


def _there(path: Path) -> Path | None:
    return path if path.is_file() else None
