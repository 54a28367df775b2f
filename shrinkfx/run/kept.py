"""A result and its repro in the output folder, and another in their place."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from pathlib import Path

from shrinkfx.program.candidate import Candidate
from shrinkfx.protocol.answers import Printed
from shrinkfx.report.atomic_files import draft_of, publish
from shrinkfx.run.reduction import Found
from shrinkfx.run.result import Result, Verified
from shrinkfx.run.subject import Subject


@dataclass(frozen=True)
class Kept:
    """What lies in the output folder.

    Attributes:
        subject: the program, called as often as the result has to be.
        printed: the worker's account of the result.
    """

    subject: Subject
    result: Result
    printed: Printed
    verified: Verified


def moved(kept: Kept, folder: Path, out: Path, before: Kept | None) -> Kept:
    """Have what was verified in a folder take the place of what lies in another.

    Args:
        before: what lies there, if that is known.
    """
    files = sorted(folder.iterdir(), key=lambda file: file.name == "repro.py")
    for file in files:
        shutil.copyfile(file, draft_of(out / file.name))
    (out / "repro.py").unlink(missing_ok=True)  # it goes with the files that it had
    for file in files:
        publish(out / file.name)
    if before is not None:
        mine = before.verified.written
        theirs = {file.resolve() for file in mine.carried.files.values()}
        gone = {file.name for file in mine.files} - {file.name for file in files}
        for name in gone:
            if (out / name).resolve() not in theirs:  # a preload may lie there
                (out / name).unlink(missing_ok=True)
    written = kept.verified.written
    written = replace(written, files=tuple(out / file.name for file in written.files))
    return replace(kept, verified=replace(kept.verified, written=written))


def result_of(
    subject: Subject, found: Found, candidate: Candidate, rate: float
) -> Result:
    """State what is known of a program that is to be reported."""
    reducer = found.reducer
    of_result = candidate is reducer.best
    return Result(
        candidate=candidate,
        form=reducer.form,
        seen=reducer.shown_by(candidate) or subject.target,
        printable=found.search.printable or not of_result,
        rate=rate,
        stopped=found.stopped,
    )
