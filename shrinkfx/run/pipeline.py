"""One run, phase by phase: reproduce the failure, reduce, write and verify.

With ``api``, this is the only package that knows the concrete classes of search, check
and report.
"""

from __future__ import annotations

import contextlib
import math
from dataclasses import asdict, replace
from pathlib import Path

from shrinkfx.check.client.server import GUARDED_WORKER, WORKER
from shrinkfx.errors import ShrinkfxError
from shrinkfx.events import (
    BaselineFound,
    Listener,
    OtherFailureFound,
    Phase,
    PhaseEntered,
)
from shrinkfx.options.options import Options
from shrinkfx.report.record import NoSource
from shrinkfx.report.summary import summarise, write_summary
from shrinkfx.run.context import INTERRUPTED, Subject
from shrinkfx.run.explaining import (
    collect_versions,
    drop_issue,
    explain_result,
    note_errors,
    report_run,
    with_explanation,
    write_issue,
)
from shrinkfx.run.folder import (
    TARGET,
    Reduction,
    larger_budget,
    open_run_folder,
    record_run_end,
    resume_command,
)
from shrinkfx.run.known_bugs import leave_out_known_bugs
from shrinkfx.run.observe import (
    load_or_find_subject,
    wants_guard_pages,
)
from shrinkfx.run.reduction import SearchResult, check_rest, reduce, stop_on_errors
from shrinkfx.run.simplification import (
    drop_listing,
    record_minimal_kinds,
    reduce_listing,
)
from shrinkfx.run.verification import (
    Verification,
    VerifiedResult,
    conclude,
    make_record,
    result_of,
    with_end,
    write_first_repro,
)


def run(options: Options, out: Path, listener: Listener) -> Reduction:
    """Reduce a program and write a verified repro to ``out``.

    Facts that an earlier session has recorded there are not computed again.

    Raises:
        KnownFailure: the program fails because of a bug in ``options.known``.
    """
    worker = GUARDED_WORKER if wants_guard_pages(options) else WORKER
    with open_run_folder(options, out, listener) as context:
        listener(PhaseEntered(Phase.BASELINE))
        with context.server(worker) as context.worker, context.bare_servers:
            program = load_or_find_subject(context)
            target, reserve_s = program.target, context.budget.reserve_s
            failure = target.kind, target.stage, target.text or target.detail
            operators = program.before.operators, program.whole.cost[0]
            listener(BaselineFound(*failure, program.rate, *operators))
            unknown = leave_out_known_bugs(program)
            for note in unknown.notes:
                context.note(note)
            program = unknown.in_program(program)
            if unknown.bugs:
                context.journal.note(TARGET, asdict(program.target))
            listener(PhaseEntered(Phase.SEARCH))
            state = reduce(program)
            with stop_on_errors(context, state):
                write_first_repro(program, state)
            listener(PhaseEntered(Phase.PLAINER))
            state = reduce_listing(context, program, state, reserve_s)
            listener(PhaseEntered(Phase.VERIFICATION))
            try:
                state, final = verify_reduction(program, state, reserve_s)
                record_minimal_kinds(context, state)
                record = with_end(final.record, program, state)
                reduction = conclude(context, record, state.reducer.best)
            except (ShrinkfxError, OSError, KeyboardInterrupt) as reason:
                _write_unverified_summary(program, state, reason)
                raise
            if final.verified.always_fails:
                context.note(_VERIFIED.format(final.verified.written.files[0]))
            with note_errors(context.note, _REST_NOT_TESTED):
                check_rest(program, state)
            listener(PhaseEntered(Phase.EXPLANATION))
            explained = explain_result(context, final)
            versions = collect_versions(context, program.client, program.target)
        # The times now include the end of the worker process.
        record = replace(record, known=[str(bug.folder) for bug in unknown.bugs])
        record = with_explanation(context.out, record, explained.cause)
        record = with_end(record, program, state)
        with contextlib.suppress(OSError):  # a summary without the cause exists
            reduction = conclude(context, record, state.reducer.best)
        issue = write_issue(context, record, explained.explanation, versions)
        before, after = reduction.operators
        status = "stopped" if state.stopped else reduction.status
        text = state.stopped or f"{status}: {before} -> {after} operators"
        is_short = _is_short(context.options, state, final)
        record_run_end(context, status, text, reduction.exit_code, is_short=is_short)
        if is_short and not state.stopped:
            context.note(_SKIPPED.format(again=resume_command(context, larger=True)))
        page = report_run(context)
        reduction = replace(
            reduction,
            cause=explained.cause,
            cause_lines=explained.lines,
            issue=issue,
            report=page,
        )
        if state.stopped:
            reduction = replace(reduction, to_go_on=resume_command(context))
    for caught in record.search.by_catch:
        listener(OtherFailureFound(**asdict(caught)))
    return reduction


def _is_short(options: Options, state: SearchResult, final: VerifiedResult) -> bool:
    """Return whether a larger budget would run steps that this run has skipped."""
    if not larger_budget(options):
        return False
    unseen = final.result.no_source is NoSource.NO_TIME
    few_runs = final.verified.always_fails and final.verified.runs < _RUNS
    return unseen or state.is_short or few_runs


_VERIFIED = "the repro is written and verified: {}"

_REST_NOT_TESTED = "the rest of the input program was not tested: {}"

_RUNS = 3
"""Number of runs of a repro, if there is time for them."""

_SKIPPED = (
    "some steps were skipped for lack of time or checks; to continue with them: {again}"
)


def verify_reduction(
    program: Subject, state: SearchResult, reserve_s: float
) -> tuple[SearchResult, VerifiedResult]:
    """Write the smallest program and its repro, and verify that the repro fails.

    If verification leads back to other operators, these are simplified as a printed
    program in turn, once.
    """
    context = program.context
    if state.stopped:
        text = f"{state.stopped}: writing and verifying the smallest program so far"
        takes_s = math.ceil(_VERIFYING * context.budget.check_s)
        again = _AGAIN.format(takes_s=takes_s, out=context.out)
        context.note(text + (again if state.stopped == INTERRUPTED else ""))
    operators = (state.made_of or state).reducer.best
    state, final = _verify_simplified(program, state, reserve_s)
    is_listed = state.made_of is not None
    if is_listed or state.reducer.best is operators or not final.verified.always_fails:
        return state, final
    listed = reduce_listing(context, program, state, reserve_s)
    if listed is state:
        return state, final
    return _verify_simplified(program, listed, reserve_s)


_VERIFYING = 4
"""Time for three runs of a repro and the start of their process, as a number of checks.
It took 43 s when a check took 10.5 s.
"""

_AGAIN = (
    ", which takes about {takes_s} s; press Ctrl-C again to stop now without losing "
    "anything; to continue later: shrinkfx --resume {out}"
)
"""Text for the first Ctrl-C."""


def _verify_simplified(
    program: Subject, state: SearchResult, reserve_s: float
) -> tuple[SearchResult, VerifiedResult]:
    """Verify a result, or what it was before simplification if no repro fails."""
    with_data = program.with_options(data=state.data)
    final = Verification(with_data, state, reserve_s).run()
    if state.made_of is None or final.verified.always_fails:
        return state, final
    program.context.note(_NOT_LISTED)
    state = drop_listing(state, "no repro of the simplified program fails in every run")
    return state, Verification(program, state, reserve_s).run()


_NOT_LISTED = (
    "no repro of the simplified program fails in every run: verifying the program "
    "before simplification"
)


def _write_unverified_summary(
    program: Subject, state: SearchResult, reason: BaseException
) -> None:
    """Write a summary of the smallest program, although its repro was not verified."""
    out = program.context.out
    state.stopped = state.stopped or str(reason) or INTERRUPTED
    drop_issue(out)
    if (repro := out / "repro.py").exists():
        reason.add_note(f"written, but its verification did not end: {repro}")
    program = program.with_options(calls=state.calls)
    result = result_of(program, state, state.reducer.best, state.rate)
    record = with_end(make_record(result), program, state)
    try:
        write_summary(out, summarise(record))
    except OSError as error:  # the disk is full; ``reason`` remains the main error
        reason.add_note(f"could not write summary.json: {error.strerror}")
