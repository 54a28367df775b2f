"""The result and its repro in the output folder, and their replacement by others."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from pathlib import Path

from shrinkfx.program.candidate import Candidate
from shrinkfx.report.record import RunRecord
from shrinkfx.report.repro_files import NoSource, VerifiedRepro
from shrinkfx.run.record import Result
from shrinkfx.run.reduction import SearchResult
from shrinkfx.run.subject import Subject
from shrinkfx.system.atomic_files import draft_of, publish_draft


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
    result: VerifiedResult, folder: Path, out: Path, before: VerifiedResult | None
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
        old = before.verified.written
        user_files = {file.resolve() for file in old.carried.files.values()}
        obsolete = {file.name for file in old.files} - {file.name for file in files}
        for name in obsolete:
            if (out / name).resolve() not in user_files:  # keep the user's preloads
                (out / name).unlink(missing_ok=True)
    written = result.verified.written
    written = replace(written, files=tuple(out / file.name for file in written.files))
    verified = replace(result.verified, written=written)
    return replace(result, record=replace(result.record, verified=verified))


def result_of(
    program: Subject, state: SearchResult, candidate: Candidate, rate: float
) -> Result:
    """Return the facts about a program that is to be reported."""
    reducer = state.reducer
    of_result = candidate is reducer.best
    return Result(
        candidate=candidate,
        form=reducer.asker.form,
        seen=reducer.asker.find_signature(candidate) or program.target,
        no_source=NoSource.PASSES if of_result and not state.printable else None,
        rate=rate,
        stopped=state.stopped,
    )
