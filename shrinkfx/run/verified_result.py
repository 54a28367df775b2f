"""The result and its repro in the output folder, and their replacement by others."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from pathlib import Path

from shrinkfx.program.candidate import Candidate
from shrinkfx.report.atomic_files import draft_of, publish_draft
from shrinkfx.report.record import RunRecord
from shrinkfx.report.repro_files import NoSource, VerifiedRepro
from shrinkfx.run.record import Result
from shrinkfx.run.reduction import SearchResult
from shrinkfx.run.subject import Subject


@dataclass(frozen=True)
class VerifiedResult:
    """The result in the output folder, with its verified repro.

    Attributes:
        subject: the input program, with the number of calls that the result needs.
        record: the record of the run, with the verified repro.
    """

    subject: Subject
    result: Result
    record: RunRecord

    @property
    def verified(self) -> VerifiedRepro:
        """The repro, and the counts of its runs."""
        return self.record.verified


def move_result(
    kept: VerifiedResult, folder: Path, out: Path, before: VerifiedResult | None
) -> VerifiedResult:
    """Replace the files in the output folder by those that were verified in another.

    Args:
        before: the result in the output folder, if there is one.
    """
    files = sorted(folder.iterdir(), key=lambda file: file.name == "repro.py")
    for file in files:
        shutil.copyfile(file, draft_of(out / file.name))
    (out / "repro.py").unlink(missing_ok=True)  # it needs the files replaced below
    for file in files:
        publish_draft(out / file.name)
    if before is not None:
        mine = before.verified.written
        theirs = {file.resolve() for file in mine.carried.files.values()}
        gone = {file.name for file in mine.files} - {file.name for file in files}
        for name in gone:
            if (out / name).resolve() not in theirs:  # keep the user's preloads
                (out / name).unlink(missing_ok=True)
    written = kept.verified.written
    written = replace(written, files=tuple(out / file.name for file in written.files))
    verified = replace(kept.verified, written=written)
    return replace(kept, record=replace(kept.record, verified=verified))


def result_of(
    subject: Subject, found: SearchResult, candidate: Candidate, rate: float
) -> Result:
    """Return the facts about a program that is to be reported."""
    reducer = found.reducer
    of_result = candidate is reducer.best
    return Result(
        candidate=candidate,
        form=reducer.asker.form,
        seen=reducer.asker.find_signature(candidate) or subject.target,
        no_source=NoSource.PASSES if of_result and not found.printable else None,
        rate=rate,
        stopped=found.stopped,
    )
