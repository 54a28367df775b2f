"""Third phase: verification is an answer like another, and may send the search back.

result -> its repro, three runs: not all fail -> back along the accepted steps to one
whose repro does -> on from there, each step verified -> its repro
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from shrinkfx import scratch
from shrinkfx.check.oracle import Compiler
from shrinkfx.check.server import Server
from shrinkfx.errors import BudgetExhausted, WorkerError
from shrinkfx.failure.signature import Signature
from shrinkfx.failure.verdict import Observation, Outcome, Verdict
from shrinkfx.program.candidate import Candidate
from shrinkfx.program.messages import Guard
from shrinkfx.run.by_command import verify_by_command
from shrinkfx.run.job import Job
from shrinkfx.run.memory import Memory, examine, without_guard_pages
from shrinkfx.run.reduction import Found, settle, settled, stopping
from shrinkfx.run.result import RUNS, Result, Verified, verify, verify_as_is, write
from shrinkfx.run.subject import Subject
from shrinkfx.search.judges import Judge


@dataclass(frozen=True)
class Kept:
    """What lies in the output folder.

    Attributes:
        subject: the program, called as often as the result has to be.
        printed: the worker's account of the result.
    """

    subject: Subject
    result: Result
    printed: Mapping[str, Any]
    verified: Verified


class Verification:
    """Finds the smallest program whose repro fails in every run, as far as that goes.

    Args:
        reserve_s: seconds to be left of the time when the search is over.
    """

    def __init__(
        self, job: Job, server: Server, subject: Subject, found: Found, reserve_s: float
    ) -> None:
        self._job, self._server, self._subject = job, server, subject
        self._found, self._reserve_s = found, reserve_s
        self._first = found.reducer.best
        self._asked = False
        self._kept: Kept | None = None
        self._settled: dict[str, tuple[int, float]] = {}

    def run(self) -> Kept:
        """Write and verify the result, or an earlier step where that cannot be."""
        confirmed = self._confirm()
        if not confirmed and self._found.plainly:
            self._job.note(_PAGES)
            self._found.plainly = False
            confirmed = self._confirm()
        kept = self._written(self._found.reducer.best)
        if confirmed:
            for larger in self._found.reducer.history[-2::-1]:
                if kept.verified.failed == RUNS:
                    break
                kept = self._written(larger)  # it was verified once
                self._found.reducer.restart(larger)
        self._found.calls, self._found.rate = kept.subject.calls, kept.result.rate
        return kept

    def _confirm(self) -> bool:
        """Go back until a repro fails in every run, and on from there.

        Where the search was stopped, it is not gone on with.
        """
        job, search, self._asked = self._job, self._found.search, False
        try:
            if not search.confirm(self._judge()):
                return False
        except BudgetExhausted as reason:
            if self._kept is None:
                raise
            self._found.stopped, job.out_of_budget = str(reason), True
            return False
        if search.reducer.best is self._first or self._found.stopped:
            return True
        job.note(_ON)
        (job.out / "repro.py").unlink(missing_ok=True)  # it does not fail
        job.budget.reserve_s = self._reserve_s
        with stopping(job, self._found):
            search.run_on()
            settle(job, self._subject, self._found)
        return True

    def _judge(self) -> Judge:
        """Make a judge that writes the first one's repro where all will look for it."""
        reducer = self._found.reducer
        pages = " without guard pages" if self._found.plainly else ""
        build = f"{reducer.build}, repro{pages}"
        check, journal = self._check, self._job.journal
        return Judge("verification", reducer.form, build, check, _REFUSAL, journal)

    def _check(self, candidate: Candidate) -> Verdict:
        if candidate is self._first and not self._asked:
            kept, self._asked = self._made(self._job, candidate, examine), True
            self._kept = kept
        else:
            self._job.note(_STEP.format(candidate.cost[0]))
            try:
                with scratch.folder("verification") as folder:
                    elsewhere = self._job.elsewhere(Path(folder))
                    kept = self._made(elsewhere, candidate, without_guard_pages)
            except WorkerError as error:  # it could not be written, say
                return Verdict(Outcome.UNRESOLVED, Observation(unresolved=error.reason))
        verified = kept.verified
        if verified.failed < verified.runs:
            return Verdict(Outcome.PASSED, Observation(runs=verified.runs))
        seen = Observation(kept.result.seen, runs=verified.runs)
        return Verdict(Outcome.REPRODUCED, seen)

    def _written(self, candidate: Candidate) -> Kept:
        """Verify a candidate in the output folder, unless it lies there."""
        if self._kept is None or self._kept.result.candidate is not candidate:
            self._kept = self._made(self._job, candidate, examine)
        return self._kept

    def _made(self, job: Job, candidate: Candidate, look: Examine) -> Kept:
        """Write a candidate and its repro, and see that fail."""
        subject, found = self._subject, self._found
        calls, rate = self._settled.get(candidate.digest, (found.calls, found.rate))
        if not found.stopped:
            calls, rate = settled(job, subject, found, candidate)
            self._settled[candidate.digest] = calls, rate
        subject = subject.with_options(calls=calls)
        result = result_of(subject, found, candidate, rate)
        seen = subject.target, candidate, result.form
        memory = look(job, subject.compiler, *seen)
        if found.plainly:
            memory = replace(memory, guard=Guard.OFF)
        result = replace(result, memory=memory)
        printed = write(job, subject.compiler, result)
        asked = job, self._server, subject, result, printed
        if subject.command:
            verified = verify_by_command(*asked)
        elif found.plainly:
            verified = verify_as_is(*asked)
        else:
            verified = verify(*asked)
        return Kept(subject, result, printed, verified)


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


Examine = Callable[[Job, Compiler, Signature, Candidate, str], Memory]

_REFUSAL = "its repro does not fail in every run"
_STEP = "verifying an earlier step, of {} operators"
_ON = (
    "the repro of the result does not fail in every run: going on from a step that does"
)
_PAGES = "no repro fails in every run without guard pages: verifying with them"
