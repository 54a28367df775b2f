"""Third phase: verify the result, and backtrack if its repro does not always fail.

    result
    -> its repro, run three or ten times
    -> if not all runs fail: back along the accepted steps to one whose repro does
    -> continue the search from there, and verify each step

A repro is source code, and uses the stock build. So a repro that fails also answers for
the later stages of the search; these run only if it does not fail.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from shrinkfx import scratch
from shrinkfx.check.client.server import Server
from shrinkfx.errors import BudgetExhausted, ShrinkfxError
from shrinkfx.failure.verdict import Observation, Outcome, Verdict
from shrinkfx.program.candidate import Candidate
from shrinkfx.run.context import RunContext
from shrinkfx.run.judging import confirm_without_guard_pages
from shrinkfx.run.reduction import (
    SearchResult,
    measure_result,
    run_search_stages,
    stop_on_errors,
)
from shrinkfx.run.repro_maker import ReproMaker, reserve_time_for_repro
from shrinkfx.run.result import NotWritten
from shrinkfx.run.subject import Subject
from shrinkfx.run.verified_result import VerifiedResult, move_result
from shrinkfx.search.asker import Asker, Confirmation
from shrinkfx.search.staged import select_steps_back


class Verification:
    """Finds the smallest program whose repro fails in every run, as far as time allows.

    Args:
        reserve_s: seconds that the search must leave for what follows.
    """

    def __init__(
        self,
        context: RunContext,
        server: Server,
        subject: Subject,
        found: SearchResult,
        reserve_s: float,
    ) -> None:
        self._context, self._subject = context, subject
        self._found, self._reserve_s = found, reserve_s
        self._maker = ReproMaker(server, subject, found)
        self._first = found.reducer.best
        self._asked = False
        self._has_gone_on = self._cut_short = False
        self._kept: VerifiedResult | None = None

    def run(self) -> VerifiedResult:
        """Write and verify the result, or an earlier step if that does not succeed."""
        reserve_time_for_repro(self._context.budget)
        is_open = self._found.search.is_open or self._found.without_guard_pages
        if is_open and not self._found.stopped:
            self._run_open_stages()
        confirmed = self._confirm()
        if not confirmed and self._found.without_guard_pages:
            self._context.note(_PAGES)
            self._found.without_guard_pages = False
            reserve_time_for_repro(self._context.budget)
            confirmed = self._confirm()
        kept = self._verify_in_place()
        if confirmed and not kept.verified.always_fails:
            with self._stop_at_budget():
                kept = self._find_earlier_step(kept)
        elif confirmed and self._found.stopped != kept.result.stopped:
            kept = self._rewrite_as_stopped(kept)
        elif self._cut_short and not kept.verified.always_fails:
            kept = self._verify_input_program(kept)
        self._found.calls, self._found.rate = kept.subject.calls, kept.result.rate
        return kept

    def _run_open_stages(self) -> None:
        """Run the remaining search stages, unless the result's repro covers them.

        If candidates must fail without guard pages, test that as well: the repro has
        none.
        """
        context, found, before = self._context, self._found, self._found.reducer
        best = before.best
        is_shown = False
        with self._stop_at_budget():
            is_shown = self._shows_all(best)
        if is_shown or found.stopped:
            return
        if found.search.is_open:
            context.note(_APART)
        context.budget.reserve_s, context.budget.overtime_s = self._reserve_s, 0.0
        with stop_on_errors(context, found):
            run_search_stages(context, self._subject, found)
            if found.without_guard_pages:
                self._confirm_plainly()
        if found.reducer is not before or found.reducer.best is not best:
            (context.out / "repro.py").unlink(missing_ok=True)  # of another result
            self._first, self._kept = found.reducer.best, None
        reserve_time_for_repro(context.budget)

    def _confirm_plainly(self) -> None:
        """Continue with the step that fails without guard pages, if there is one."""
        context, subject, found = self._context, self._subject, self._found
        best = found.reducer.best
        found.without_guard_pages = confirm_without_guard_pages(
            context, subject, found.search
        )
        if found.reducer.best is not best:
            found.forget(subject)
            measure_result(context, subject, found)

    def _shows_all(self, best: Candidate) -> bool:
        """Return whether the result's repro fails, in the form and build of each stage.

        A repro that is not source for lack of time counts, because the stages would
        lack time, too.
        """
        if not self._make_confirmation().confirms(best):
            return False
        verified, budget = self._verify_in_place().verified, self._context.budget
        is_source = verified.written.is_source and self._found.printable
        can_be = self._found.printable and self._maker.has_time_for_source(budget, best)
        return verified.always_fails and (is_source or not can_be)

    def _made(self, context: RunContext, candidate: Candidate) -> VerifiedResult:
        return self._maker.make(context, candidate, must=self._kept is None)

    def _verify_input_program(self, kept: VerifiedResult) -> VerifiedResult:
        """Verify the input program's repro, if time was short for earlier steps."""
        reducer, whole = self._found.reducer, self._found.search.history[0]
        if reducer.best is whole:
            return kept
        reserve_time_for_repro(self._context.budget)
        with contextlib.suppress(BudgetExhausted):
            other = self._made_elsewhere(whole)
            if other is not None and other.verified.always_fails:
                reducer.restart(whole)
                self._found.forget(self._subject)
                return other
        return kept

    def _verify_in_place(self) -> VerifiedResult:
        """Verify the result in the output folder, unless that has been done."""
        best = self._found.reducer.best
        if self._kept is None or self._kept.result.candidate != best:
            self._kept = self._made(self._context, best)
        return self._kept

    def _find_earlier_step(self, kept: VerifiedResult) -> VerifiedResult:
        """Find an earlier step whose repro always fails, because the result's does not.

        The search confirmed the result in an earlier session. If no step does better,
        the result remains.
        """
        reducer = self._found.reducer
        for larger in select_steps_back(reducer.history)[1:]:
            other = self._made_elsewhere(larger)
            if other is not None and other.verified.always_fails:
                reducer.restart(larger)
                self._found.forget(self._subject)
                return other
        return kept

    def _rewrite_as_stopped(self, kept: VerifiedResult) -> VerifiedResult:
        """Write a verified repro again, so that it says that the search was stopped."""
        with contextlib.suppress(ShrinkfxError, OSError):  # may occur once more
            again = self._made_elsewhere(kept.result.candidate)
            if again is not None and again.verified.always_fails:
                return again
        return kept

    def _confirm(self) -> bool:
        """Backtrack until a repro fails in every run, and continue the search there.

        A search that was stopped is not continued.
        """
        context, search, self._asked = self._context, self._found.search, False
        confirmed = False
        with self._stop_at_budget():
            confirmed = search.confirm(self._make_confirmation())
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
            (context.out / "repro.py").unlink(missing_ok=True)  # it did not verify
        context.budget.reserve_s, context.budget.overtime_s = self._reserve_s, 0.0
        with stop_on_errors(context, self._found):
            search.continue_search()
            measure_result(context, self._subject, self._found)
        return True

    @contextlib.contextmanager
    def _stop_at_budget(self) -> Iterator[None]:
        """Stop backtracking when the budget is exhausted; keep the repro so far."""
        try:
            yield
        except BudgetExhausted as reason:
            self._found.stopped, self._context.out_of_budget = str(reason), True
            self._cut_short = True
            if self._kept is None:
                reserve_time_for_repro(
                    self._context.budget
                )  # the caller writes it after this

    def _make_confirmation(self) -> Confirmation:
        """Return a confirmation that verifies repros, the first one in place."""
        reducer = self._found.reducer
        pages = " without guard pages" if self._found.without_guard_pages else ""
        build = f"{reducer.asker.build}, repro{pages}"
        journal, form = self._context.journal, reducer.asker.form
        asker = Asker(self, journal=journal, form=form, build=build, again=True)
        return Confirmation("verification", asker, _REFUSAL)

    def check(self, candidate: Candidate) -> Verdict:
        """Return whether a candidate's repro fails in every run, as a verdict."""
        kept: VerifiedResult | None
        budget = self._context.budget
        if candidate is self._first and not self._asked:
            kept = self._made_in_place(candidate)
        elif not budget.has(self._maker.check_s(budget, candidate)):
            raise BudgetExhausted("time limit reached")
        else:
            kept = self._made_elsewhere(candidate)
        if kept is None:
            unresolved = "the repro could not be written"
            return Verdict(Outcome.UNRESOLVED, Observation(unresolved=unresolved))
        verified = kept.verified
        if not verified.runs:
            unresolved = "all runs of the repro were inconclusive"
            return Verdict(Outcome.UNRESOLVED, Observation(unresolved=unresolved))
        if not verified.always_fails:
            return Verdict(Outcome.PASSED, Observation(runs=verified.runs))
        seen = Observation(kept.result.seen, runs=verified.runs)
        return Verdict(Outcome.REPRODUCED, seen)

    def _made_in_place(self, candidate: Candidate) -> VerifiedResult | None:
        """Verify a candidate in the output folder; None if it cannot be written."""
        self._asked = True
        with contextlib.suppress(NotWritten):
            self._kept = self._made(self._context, candidate)
            return self._kept
        return None

    def _made_elsewhere(self, candidate: Candidate) -> VerifiedResult | None:
        """Verify a candidate in a scratch folder; None if it cannot be written.

        If its repro always fails, it replaces the files in the output folder.
        """
        note = _CANDIDATE if self._has_gone_on else _STEP
        self._context.note(note.format(candidate.cost[0]))
        with (
            contextlib.suppress(NotWritten),
            scratch.make_scratch_folder("verification") as folder,
        ):
            kept = self._made(self._context.with_output_folder(Path(folder)), candidate)
            if kept.verified.always_fails:
                kept = self._kept = move_result(
                    kept, Path(folder), self._context.out, self._kept
                )
            return kept
        return None


_APART = (
    "this repro.py does not fail: testing which candidates fail as source code and "
    "with a normal AOTInductor build"
)
_REFUSAL = "its repro does not fail in every run"
_STEP = "verifying an earlier step ({} operators)"
_CANDIDATE = "verifying a candidate ({} operators)"
_ON = (
    "the repro of the reduced program does not fail in every run: backtracking to a "
    "step whose repro does"
)
_PAGES = "no repro fails in every run without guard pages: verifying with guard pages"
