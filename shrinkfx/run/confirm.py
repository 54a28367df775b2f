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

from shrinkfx.check.client.server import Server
from shrinkfx.errors import BudgetExhausted, ShrinkfxError
from shrinkfx.failure.verdict import Observation, Outcome, Verdict
from shrinkfx.program.candidate import Candidate
from shrinkfx.run.context import RunContext
from shrinkfx.run.oracles import confirm_without_guard_pages
from shrinkfx.run.record import VerifiedResult, move_result
from shrinkfx.run.reduction import (
    SearchResult,
    measure_result,
    run_search_stages,
    stop_on_errors,
)
from shrinkfx.run.result import NotWritten, ReproMaker, reserve_time_for_repro
from shrinkfx.run.subject import Subject
from shrinkfx.search.asker import Asker, Confirmation
from shrinkfx.search.staged import select_steps_back
from shrinkfx.system import scratch


class Verification:
    """Finds the smallest program whose repro fails in every run, as far as time allows.

    Args:
        reserve_s: seconds that the search must leave for what follows.
    """

    def __init__(
        self,
        context: RunContext,
        server: Server,
        program: Subject,
        state: SearchResult,
        reserve_s: float,
    ) -> None:
        self._context, self._program = context, program
        self._state, self._reserve_s = state, reserve_s
        self._maker = ReproMaker(server, program, state)
        self._first = state.reducer.best
        self._first_done = False
        self._backtracked = self._cut_short = False
        self._saved: VerifiedResult | None = None

    def run(self) -> VerifiedResult:
        """Write and verify the result, or an earlier step if that does not succeed."""
        reserve_time_for_repro(self._context.budget)
        is_open = self._state.search.is_open or self._state.without_guard_pages
        if is_open and not self._state.stopped:
            self._run_open_stages()
        confirmed = self._confirm()
        if not confirmed and self._state.without_guard_pages:
            self._context.note(_PAGES)
            self._state.without_guard_pages = False
            reserve_time_for_repro(self._context.budget)
            confirmed = self._confirm()
        saved = self._verify_in_place()
        if confirmed and not saved.verified.always_fails:
            with self._stop_at_budget():
                saved = self._find_earlier_step(saved)
        elif confirmed and self._state.stopped != saved.result.stopped:
            saved = self._rewrite_as_stopped(saved)
        elif self._cut_short and not saved.verified.always_fails:
            saved = self._verify_input_program(saved)
        self._state.calls, self._state.rate = saved.subject.calls, saved.result.rate
        return saved

    def _run_open_stages(self) -> None:
        """Run the remaining search stages, unless the result's repro covers them.

        If candidates must fail without guard pages, test that as well: the repro has
        none.
        """
        context, state, before = self._context, self._state, self._state.reducer
        reduced = before.best
        is_shown = False
        with self._stop_at_budget():
            is_shown = self._shows_all(reduced)
        if is_shown or state.stopped:
            return
        if state.search.is_open:
            context.note(_OPEN_STAGES)
        context.budget.reserve_s, context.budget.overtime_s = self._reserve_s, 0.0
        with stop_on_errors(context, state):
            run_search_stages(context, self._program, state)
            if state.without_guard_pages:
                self._confirm_plainly()
        if state.reducer is not before or state.reducer.best is not reduced:
            (context.out / "repro.py").unlink(missing_ok=True)  # of another result
            self._first, self._saved = state.reducer.best, None
        reserve_time_for_repro(context.budget)

    def _confirm_plainly(self) -> None:
        """Continue with the step that fails without guard pages, if there is one."""
        context, program, state = self._context, self._program, self._state
        reduced = state.reducer.best
        state.without_guard_pages = confirm_without_guard_pages(
            context, program, state.search
        )
        if state.reducer.best is not reduced:
            state.forget(program)
            measure_result(context, program, state)

    def _shows_all(self, candidate: Candidate) -> bool:
        """Return whether the result's repro fails, in the form and build of each stage.

        A repro that is not source for lack of time counts, because the stages would
        lack time, too.
        """
        if not self._make_confirmation().confirms(candidate):
            return False
        verified, budget = self._verify_in_place().verified, self._context.budget
        is_source = verified.written.is_source and self._state.printable
        can_be = self._state.printable and self._maker.has_time_for_source(
            budget, candidate
        )
        return verified.always_fails and (is_source or not can_be)

    def _made(self, context: RunContext, candidate: Candidate) -> VerifiedResult:
        return self._maker.make(context, candidate, must=self._saved is None)

    def _verify_input_program(self, saved: VerifiedResult) -> VerifiedResult:
        """Verify the input program's repro, if time was short for earlier steps."""
        reducer, input_program = self._state.reducer, self._state.search.history[0]
        if reducer.best is input_program:
            return saved
        reserve_time_for_repro(self._context.budget)
        with contextlib.suppress(BudgetExhausted):
            return self._restart_if_verified(input_program) or saved
        return saved

    def _verify_in_place(self) -> VerifiedResult:
        """Verify the result in the output folder, unless that has been done."""
        reduced = self._state.reducer.best
        if self._saved is None or self._saved.result.candidate != reduced:
            self._saved = self._made(self._context, reduced)
        return self._saved

    def _find_earlier_step(self, saved: VerifiedResult) -> VerifiedResult:
        """Find an earlier step whose repro always fails, because the result's does not.

        The search confirmed the result in an earlier session. If no step does better,
        the result remains.
        """
        for larger in select_steps_back(self._state.reducer.history)[1:]:
            if (other := self._restart_if_verified(larger)) is not None:
                return other
        return saved

    def _restart_if_verified(self, step: Candidate) -> VerifiedResult | None:
        """Make a step the result if its repro always fails; else return None."""
        other = self._made_elsewhere(step)
        if other is None or not other.verified.always_fails:
            return None
        self._state.reducer.restart(step)
        self._state.forget(self._program)
        return other

    def _rewrite_as_stopped(self, saved: VerifiedResult) -> VerifiedResult:
        """Write a verified repro again, so that it says that the search was stopped."""
        with contextlib.suppress(ShrinkfxError, OSError):  # may occur once more
            again = self._made_elsewhere(saved.result.candidate)
            if again is not None and again.verified.always_fails:
                return again
        return saved

    def _confirm(self) -> bool:
        """Backtrack until a repro fails in every run, and continue the search there.

        A search that was stopped is not continued.
        """
        context, search, self._first_done = self._context, self._state.search, False
        confirmed = False
        with self._stop_at_budget():
            confirmed = search.confirm(self._make_confirmation())
        if not confirmed:
            return False
        if search.reducer.best is self._first:
            return True
        self._state.forget(self._program)
        if self._state.stopped:
            return True
        context.note(_BACKTRACKING)
        self._backtracked = True
        if self._saved is None or self._saved.result.candidate != search.reducer.best:
            (context.out / "repro.py").unlink(missing_ok=True)  # it did not verify
        context.budget.reserve_s, context.budget.overtime_s = self._reserve_s, 0.0
        with stop_on_errors(context, self._state):
            search.continue_search()
            measure_result(context, self._program, self._state)
        return True

    @contextlib.contextmanager
    def _stop_at_budget(self) -> Iterator[None]:
        """Stop backtracking when the budget is exhausted; keep the repro so far."""
        try:
            yield
        except BudgetExhausted as reason:
            self._state.stopped, self._context.out_of_budget = str(reason), True
            self._cut_short = True
            if self._saved is None:
                reserve_time_for_repro(
                    self._context.budget
                )  # the caller writes it after this

    def _make_confirmation(self) -> Confirmation:
        """Return a confirmation that verifies repros, the first one in place."""
        reducer = self._state.reducer
        pages = " without guard pages" if self._state.without_guard_pages else ""
        build = f"{reducer.asker.build}, repro{pages}"
        journal, form = self._context.journal, reducer.asker.form
        cache = Asker(self, journal=journal, form=form, build=build, again=True)
        return Confirmation("verification", cache, _REFUSAL)

    def check(self, candidate: Candidate) -> Verdict:
        """Return whether a candidate's repro fails in every run, as a verdict."""
        trial: VerifiedResult | None
        budget = self._context.budget
        if candidate is self._first and not self._first_done:
            trial = self._made_in_place(candidate)
        elif not budget.has(self._maker.check_s(budget, candidate)):
            raise BudgetExhausted("time limit reached")
        else:
            trial = self._made_elsewhere(candidate)
        if trial is None:
            unresolved = "the repro could not be written"
            return Verdict(Outcome.UNRESOLVED, Observation(unresolved=unresolved))
        verified = trial.verified
        if not verified.runs:
            unresolved = "all runs of the repro were inconclusive"
            return Verdict(Outcome.UNRESOLVED, Observation(unresolved=unresolved))
        if not verified.always_fails:
            return Verdict(Outcome.PASSED, Observation(runs=verified.runs))
        seen = Observation(trial.result.seen, runs=verified.runs)
        return Verdict(Outcome.REPRODUCED, seen)

    def _made_in_place(self, candidate: Candidate) -> VerifiedResult | None:
        """Verify a candidate in the output folder; None if it cannot be written."""
        self._first_done = True
        with contextlib.suppress(NotWritten):
            self._saved = self._made(self._context, candidate)
            return self._saved
        return None

    def _made_elsewhere(self, candidate: Candidate) -> VerifiedResult | None:
        """Verify a candidate in a scratch folder; None if it cannot be written.

        If its repro always fails, it replaces the files in the output folder.
        """
        note = _CANDIDATE if self._backtracked else _STEP
        self._context.note(note.format(candidate.cost[0]))
        with (
            contextlib.suppress(NotWritten),
            scratch.make_scratch_folder("verification") as folder,
        ):
            trial = self._made(
                self._context.with_output_folder(Path(folder)), candidate
            )
            if trial.verified.always_fails:
                trial = self._saved = move_result(
                    trial, Path(folder), self._context.out, self._saved
                )
            return trial
        return None


_OPEN_STAGES = (
    "this repro.py does not fail: testing which candidates fail as source code and "
    "with a normal AOTInductor build"
)
_REFUSAL = "its repro does not fail in every run"
_STEP = "verifying an earlier step ({} operators)"
_CANDIDATE = "verifying a candidate ({} operators)"
_BACKTRACKING = (
    "the repro of the reduced program does not fail in every run: backtracking to a "
    "step whose repro does"
)
_PAGES = "no repro fails in every run without guard pages: verifying with guard pages"
