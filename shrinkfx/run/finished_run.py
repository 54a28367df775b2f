"""Read the outcome of a finished run from its folder."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from shrinkfx.errors import UsageError
from shrinkfx.failure.signature import Signature
from shrinkfx.findings.record import EXPLAIN, Explanation
from shrinkfx.findings.words import explanation_lines
from shrinkfx.journal.journal import Journal
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
from shrinkfx.system.output_folder import CAPTURE, moved_file_finder


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
