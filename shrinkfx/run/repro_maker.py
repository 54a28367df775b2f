"""Write a candidate and its repro, and run the repro, within the time limit."""

from __future__ import annotations

from dataclasses import dataclass, replace

from shrinkfx.check.client.server import Server
from shrinkfx.errors import BudgetExhausted
from shrinkfx.failure.signature import Stage
from shrinkfx.program.candidate import Candidate
from shrinkfx.protocol.choices import Guard
from shrinkfx.protocol.descriptions import Printed
from shrinkfx.report.repro_files import NoSource
from shrinkfx.run.by_command import verify_by_command
from shrinkfx.run.context import RunContext
from shrinkfx.run.core_dump import leave_core_dump
from shrinkfx.run.judging import seen_to_fail_without_guard_pages
from shrinkfx.run.memory_error import analyze_memory_error, is_on_gpu
from shrinkfx.run.record import Result
from shrinkfx.run.reduction import SearchResult, calls_and_rate
from shrinkfx.run.result import verify_as_is, verify_result, write_result
from shrinkfx.run.subject import Subject
from shrinkfx.run.verified_result import VerifiedResult, result_of
from shrinkfx.search.budget import Budget


def reserve_time_for_repro(budget: Budget) -> None:
    """Reserve time to write a program and run its repro, even beyond the limit."""
    budget.guarantee_seconds(_CHECKS_TO_RUN * budget.check_s + _TO_WRITE_S)


@dataclass(frozen=True)
class ReproMaker:
    """Writes a candidate and its repro, and verifies that the repro fails."""

    server: Server
    subject: Subject
    found: SearchResult

    def check_s(self, budget: Budget, candidate: Candidate) -> float:
        """Return the expected seconds of a check of a candidate."""
        is_full = candidate.cost >= self.subject.whole.cost
        return budget.check_s if is_full else budget.pace_s

    def has_time_for_source(self, budget: Budget, candidate: Candidate) -> bool:
        """Return whether there is time to try the repro as source."""
        return budget.has(_CHECKS_FOR_SOURCE * self.check_s(budget, candidate))

    def make(
        self, context: RunContext, candidate: Candidate, *, must: bool
    ) -> VerifiedResult:
        """Write a candidate and its repro, and verify that the repro fails.

        Args:
            must: if the time limit ends the runs as source, run a repro that embeds the
                program instead, beyond the limit.
        """
        state, budget = self.found, context.budget
        calls, rate = calls_and_rate(context, self.subject, state, candidate)
        program = self.subject.with_options(calls=calls)
        result = result_of(program, state, candidate, rate)
        known = seen_to_fail_without_guard_pages(context, candidate, result.form)
        details = program.target, candidate, result.form, known
        on_gpu = is_on_gpu(self.server.ready)
        client = program.built_as(state.reducer.asker.build).client
        memory = analyze_memory_error(context, client, *details, on_gpu=on_gpu)
        at_run_time = program.target.stage is Stage.RUN and not program.command
        if context.options.cuda_coredump and on_gpu and at_run_time:
            leave_core_dump(context, program.client, candidate, result.form)
        if state.without_guard_pages:
            memory = replace(memory, guard=Guard.OFF)
        result = replace(result, memory=memory)
        printed = write_result(context, program.client, result)
        if not result.no_source and not self.has_time_for_source(budget, candidate):
            context.note(
                "not enough time left: repro.py will embed the program "
                "instead of its source"
            )
            result = replace(result, no_source=NoSource.NO_TIME)
        try:
            return self._run(context, program, result, printed)
        except BudgetExhausted:
            if result.no_source or printed.unprintable or not must:
                raise
            reserve_time_for_repro(budget)
            result = replace(result, no_source=NoSource.NO_TIME)
            return self._run(context, program, result, printed)

    def _run(
        self, context: RunContext, program: Subject, result: Result, printed: Printed
    ) -> VerifiedResult:
        """Write the repro of a result that is saved and printed, and run the repro."""
        arguments = context, self.server, program, result, printed
        if program.command:
            record = verify_by_command(*arguments)
        elif self.found.without_guard_pages:
            record = verify_as_is(*arguments)
        else:
            record = verify_result(*arguments)
        return VerifiedResult(program, result, record)


_CHECKS_TO_RUN, _TO_WRITE_S = 2, 30.0
"""Time to write a program, start a process and run the repro there: a number of checks
of the input program, plus seconds.
"""

_CHECKS_FOR_SOURCE = 3
"""Maximum number of runs of a repro that is source: with seeded inputs, and with saved
inputs if those do not fail. A repro that embeds the program takes one run.
"""
