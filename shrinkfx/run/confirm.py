"""Third phase: verification is an answer like another, and may send the search back.

result -> its repro, three runs: not all fail -> back along the accepted steps to one
whose repro does -> on from there, each step verified -> its repro
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from shrinkfx import scratch
from shrinkfx.check.client.server import Server
from shrinkfx.errors import BudgetExhausted, ShrinkfxError
from shrinkfx.failure.verdict import Observation, Outcome, Verdict
from shrinkfx.program.candidate import Candidate
from shrinkfx.protocol.answers import Printed
from shrinkfx.protocol.choices import Guard
from shrinkfx.run.by_command import verify_by_command
from shrinkfx.run.context import RunContext
from shrinkfx.run.judging import seen_to_fail_without_guard_pages
from shrinkfx.run.kept import Kept, moved, result_of
from shrinkfx.run.memory_error import examine
from shrinkfx.run.record import Result
from shrinkfx.run.reduction import (
    SearchResult,
    calls_and_rate,
    measure_result,
    stopping,
)
from shrinkfx.run.result import NotWritten, verify, verify_as_is, write
from shrinkfx.run.subject import Subject
from shrinkfx.search.asker import Asker, Confirmation
from shrinkfx.search.staged import steps_back


class Verification:
    """Finds the smallest program whose repro fails in every run, as far as that goes.

    Args:
        reserve_s: seconds to be left of the time when the search is over.
    """

    def __init__(
        self,
        context: RunContext,
        server: Server,
        subject: Subject,
        found: SearchResult,
        reserve_s: float,
    ) -> None:
        self._context, self._server, self._subject = context, server, subject
        self._found, self._reserve_s = found, reserve_s
        self._first = found.reducer.best
        self._asked = False
        self._has_gone_on = self._cut_short = False
        self._kept: Kept | None = None

    def run(self) -> Kept:
        """Write and verify the result, or an earlier step where that cannot be."""
        self._must_be_there()
        confirmed = self._confirm()
        if not confirmed and self._found.without_guard_pages:
            self._context.note(_PAGES)
            self._found.without_guard_pages = False
            self._must_be_there()
            confirmed = self._confirm()
        kept = self._written()
        if confirmed and not kept.verified.always_fails:
            with self._out_of_budget():
                kept = self._gone_back(kept)
        elif confirmed and self._found.stopped != kept.result.stopped:
            kept = self._told_to_be_stopped(kept)
        elif self._cut_short and not kept.verified.always_fails:
            kept = self._original_at_least(kept)
        self._found.calls, self._found.rate = kept.subject.calls, kept.result.rate
        return kept

    def _must_be_there(self) -> None:
        """Have time to write a program and to run its repro once, come what may."""
        budget = self._context.budget
        budget.must_have(_CHECKS_TO_RUN * budget.check_s + _TO_WRITE_S)

    def _check_s(self, candidate: Candidate) -> float:
        budget = self._context.budget
        is_whole = candidate.cost >= self._subject.whole.cost
        return budget.check_s if is_whole else budget.pace_s

    def _original_at_least(self, kept: Kept) -> Kept:
        """Verify the original's own repro where there was no time for steps back."""
        reducer, whole = self._found.reducer, self._found.search.history[0]
        if reducer.best is whole:
            return kept
        self._must_be_there()
        with contextlib.suppress(BudgetExhausted):
            other = self._made_elsewhere(whole)
            if other is not None and other.verified.always_fails:
                reducer.restart(whole)
                self._found.forget(self._subject)
                return other
        return kept

    def _written(self) -> Kept:
        """Verify the result in the output folder, unless it lies there."""
        best = self._found.reducer.best
        if self._kept is None or self._kept.result.candidate != best:
            self._kept = self._made(self._context, best)
        return self._kept

    def _gone_back(self, kept: Kept) -> Kept:
        """Look for a step whose repro fails, where that of the result does no more.

        It was verified in an earlier session: if no other does better, it stays.
        """
        reducer = self._found.reducer
        for larger in steps_back(reducer.history)[1:]:
            other = self._made_elsewhere(larger)
            if other is not None and other.verified.always_fails:
                reducer.restart(larger)
                self._found.forget(self._subject)
                return other
        return kept

    def _told_to_be_stopped(self, kept: Kept) -> Kept:
        """Have a repro that was verified before the end say that it may be larger."""
        with contextlib.suppress(ShrinkfxError, OSError):  # such as ended the search
            again = self._made_elsewhere(kept.result.candidate)
            if again is not None and again.verified.always_fails:
                return again
        return kept

    def _confirm(self) -> bool:
        """Go back until a repro fails in every run, and on from there.

        Where the search was stopped, it is not gone on with.
        """
        context, search, self._asked = self._context, self._found.search, False
        confirmed = False
        with self._out_of_budget():
            confirmed = search.confirm(self._judge())
        if not confirmed:
            return False
        if search.reducer.best is self._first:
            return True
        self._found.forget(self._subject)
        if self._found.stopped:
            return True
        context.note(_ON)
        self._has_gone_on = True
        if self._kept is None or self._kept.result.candidate != search.reducer.best:
            (context.out / "repro.py").unlink(missing_ok=True)  # it does not fail
        context.budget.reserve_s, context.budget.overtime_s = self._reserve_s, 0.0
        with stopping(context, self._found):
            search.run_on()
            measure_result(context, self._subject, self._found)
        return True

    @contextlib.contextmanager
    def _out_of_budget(self) -> Iterator[None]:
        """Have the way back end where the minutes do, with what there is."""
        try:
            yield
        except BudgetExhausted as reason:
            self._found.stopped, self._context.out_of_budget = str(reason), True
            self._cut_short = True
            if self._kept is None:
                self._must_be_there()  # it is written after this

    def _judge(self) -> Confirmation:
        """Make a judge that writes the first one's repro where all will look for it."""
        reducer = self._found.reducer
        pages = " without guard pages" if self._found.without_guard_pages else ""
        build = f"{reducer.asker.build}, repro{pages}"
        journal, form = self._context.journal, reducer.asker.form
        asker = Asker(self, journal=journal, form=form, build=build, again=True)
        return Confirmation("verification", asker, _REFUSAL)

    def check(self, candidate: Candidate) -> Verdict:
        """Answer, as an oracle does, whether a candidate's repro fails in every run."""
        kept: Kept | None
        if candidate is self._first and not self._asked:
            kept = self._made_in_place(candidate)
        elif not self._context.budget.has(self._check_s(candidate)):
            raise BudgetExhausted("the minutes are spent")
        else:
            kept = self._made_elsewhere(candidate)
        if kept is None:
            unresolved = "it could not be written"
            return Verdict(Outcome.UNRESOLVED, Observation(unresolved=unresolved))
        verified = kept.verified
        if not verified.runs:
            unresolved = "no run of its repro had an answer"
            return Verdict(Outcome.UNRESOLVED, Observation(unresolved=unresolved))
        if not verified.always_fails:
            return Verdict(Outcome.PASSED, Observation(runs=verified.runs))
        seen = Observation(kept.result.seen, runs=verified.runs)
        return Verdict(Outcome.REPRODUCED, seen)

    def _made_in_place(self, candidate: Candidate) -> Kept | None:
        """Verify a candidate in the output folder; None if it cannot be written."""
        self._asked = True
        with contextlib.suppress(NotWritten):
            self._kept = self._made(self._context, candidate)
            return self._kept
        return None

    def _made_elsewhere(self, candidate: Candidate) -> Kept | None:
        """Verify a candidate in a scratch folder; None if it cannot be written.

        What verifies takes the place of what lies in the output folder.
        """
        note = _CANDIDATE if self._has_gone_on else _STEP
        self._context.note(note.format(candidate.cost[0]))
        with (
            contextlib.suppress(NotWritten),
            scratch.folder("verification") as folder,
        ):
            kept = self._made(self._context.elsewhere(Path(folder)), candidate)
            if kept.verified.always_fails:
                kept = self._kept = moved(
                    kept, Path(folder), self._context.out, self._kept
                )
            return kept
        return None

    def _made(self, context: RunContext, candidate: Candidate) -> Kept:
        """Write a candidate and its repro, and see that fail."""
        found = self._found
        calls, rate = calls_and_rate(context, self._subject, found, candidate)
        subject = self._subject.with_options(calls=calls)
        result = result_of(subject, found, candidate, rate)
        known = seen_to_fail_without_guard_pages(context, candidate, result.form)
        about = subject.target, candidate, result.form, known
        memory = examine(context, subject.client, *about)
        if found.without_guard_pages:
            memory = replace(memory, guard=Guard.OFF)
        result = replace(result, memory=memory)
        printed = write(context, subject.client, result)
        if not context.budget.has(_CHECKS_FOR_SOURCE * self._check_s(candidate)):
            context.note("minutes are short: repro.py will hold the program itself")
            printed = replace(printed, unprintable=_NO_TIME)
        try:
            return self._run(context, subject, result, printed)
        except BudgetExhausted:
            if printed.unprintable or self._kept is not None:
                raise
            self._must_be_there()
            printed = replace(printed, unprintable=_NO_TIME)
            return self._run(context, subject, result, printed)

    def _run(
        self, context: RunContext, subject: Subject, result: Result, printed: Printed
    ) -> Kept:
        """Write the repro of a result that is saved and printed, and run that."""
        asked = context, self._server, subject, result, printed
        if subject.command:
            record = verify_by_command(*asked)
        elif self._found.without_guard_pages:
            record = verify_as_is(*asked)
        else:
            record = verify(*asked)
        return Kept(subject, result, record)


_CHECKS_TO_RUN, _TO_WRITE_S = 2, 30.0
"""What it may take to write a program, start a process and run the repro there: checks
of the whole program, and seconds."""

_CHECKS_FOR_SOURCE = 3
"""Runs that a repro may take which is source, whose inputs come from a seed if it fails
with these, and else not; the program itself, with its inputs, takes one."""

_NO_TIME = "minutes were short"

_REFUSAL = "its repro does not fail in every run"
_STEP = "verifying an earlier step, of {} operators"
_CANDIDATE = "verifying a candidate of {} operators"
_ON = (
    "the repro of the result does not fail in every run: going on from a step that does"
)
_PAGES = "no repro fails in every run without guard pages: verifying with them"
