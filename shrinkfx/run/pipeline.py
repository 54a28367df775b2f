"""One run, phase by phase: reproduce the failure, reduce, write and verify.

With ``api``, this is the only package that knows the concrete classes of search, check
and report.
"""

from __future__ import annotations

import contextlib
import math
from dataclasses import asdict, replace
from pathlib import Path

from shrinkfx.check.client.server import GUARDED_WORKER, WORKER, Server
from shrinkfx.errors import ShrinkfxError
from shrinkfx.events import Caught, Entered, Listener, Phase, Seen
from shrinkfx.failure.blame import Suspect
from shrinkfx.options.options import Options, Reduction
from shrinkfx.report.summary import summarise, write_summary
from shrinkfx.report.written import NoSource
from shrinkfx.run.confirm import Verification
from shrinkfx.run.context import INTERRUPTED, RunContext, server_for
from shrinkfx.run.explaining import explain_result
from shrinkfx.run.folder import at_work, finish
from shrinkfx.run.going_on import how_to_go_on, larger_budget
from shrinkfx.run.issue import (
    collect_versions,
    drop_issue,
    with_explanation,
    write_issue,
)
from shrinkfx.run.kept import Kept, result_of
from shrinkfx.run.listing import (
    reduce_listing,
    say_what_is_minimal,
    without_listing,
)
from shrinkfx.run.memory_error import wants_guard_pages
from shrinkfx.run.observe import find_subject
from shrinkfx.run.record import conclude, with_baseline, with_end, with_result
from shrinkfx.run.reduction import SearchResult, reduce
from shrinkfx.run.reporting import report_run
from shrinkfx.run.resume import recall_subject
from shrinkfx.run.subject import Subject


def blame(options: Options, out: Path, listener: Listener) -> tuple[Suspect, ...]:
    """Reproduce the failure, and return the operators that may cause it."""
    context = RunContext(options, out, listener)
    worker = GUARDED_WORKER if wants_guard_pages(options) else WORKER
    with server_for(options, worker) as server:
        return find_subject(context, server).suspects


def run(options: Options, out: Path, listener: Listener) -> Reduction:
    """Reduce a program and write a verified repro to ``out``.

    Facts that an earlier session has recorded there are not computed again.
    """
    worker = GUARDED_WORKER if wants_guard_pages(options) else WORKER
    with at_work(options, out, listener) as context:
        listener(Entered(Phase.BASELINE))
        with context.server(worker) as server:
            subject = recall_subject(context, server)
            target, reserve_s = subject.target, context.budget.reserve_s
            asked = target.kind, target.stage, target.text or target.detail
            operators = subject.before.operators, subject.whole.cost[0]
            listener(Seen(*asked, subject.rate, *operators))
            listener(Entered(Phase.SEARCH))
            found = reduce(context, subject)
            listener(Entered(Phase.PLAINER))
            found = reduce_listing(context, subject, found, reserve_s)
            listener(Entered(Phase.VERIFICATION))
            try:
                found, kept = verified(context, server, subject, found, reserve_s)
                say_what_is_minimal(context, found)
                record = with_end(kept.record, context, found, subject.client.builds)
                reduction = conclude(context, record, found.reducer.best)
            except (ShrinkfxError, OSError, KeyboardInterrupt) as reason:
                _sum_up_unverified(context, server, subject, found, reason)
                raise
            listener(Entered(Phase.EXPLANATION))
            explained = explain_result(context, kept)
            versions = collect_versions(context, subject.client, target)
        # The times now include the end of the worker process.
        record = with_explanation(context.out, record, explained.cause)
        record = with_end(record, context, found, subject.client.builds)
        with contextlib.suppress(OSError):  # a summary without the cause exists
            reduction = conclude(context, record, found.reducer.best)
        issue = write_issue(context, record, explained.explanation, versions)
        before, after = reduction.operators
        status = "stopped" if found.stopped else reduction.status
        said = found.stopped or f"{status}: {before} -> {after} operators"
        is_short = _is_short(context.options, found, kept)
        finish(context, status, said, reduction.exit_code, is_short=is_short)
        if is_short and not found.stopped:
            context.note(_LEFT_OUT.format(again=how_to_go_on(context, larger=True)))
        page = report_run(context)
        reduction = replace(
            reduction,
            cause=explained.cause,
            told=explained.lines,
            issue=issue,
            report=page,
        )
        if found.stopped:
            reduction = replace(reduction, to_go_on=how_to_go_on(context))
    for caught in record.search.by_catch:
        listener(Caught(**asdict(caught)))
    return reduction


def _is_short(options: Options, found: SearchResult, kept: Kept) -> bool:
    """Return whether a larger budget would run steps that this run has skipped."""
    if not larger_budget(options):
        return False
    unseen = kept.result.no_source is NoSource.NO_TIME
    few_runs = kept.verified.always_fails and kept.verified.runs < _RUNS
    return unseen or found.is_short or few_runs


_RUNS = 3
"""Number of runs of a repro, if there is time for them."""

_LEFT_OUT = (
    "some steps were skipped for lack of time or checks; to continue with them: {again}"
)


def verified(
    context: RunContext,
    server: Server,
    subject: Subject,
    found: SearchResult,
    reserve_s: float,
) -> tuple[SearchResult, Kept]:
    """Write the smallest program and its repro, and verify that the repro fails.

    If verification leads back to other operators, these are simplified as a printed
    program in turn, once.
    """
    if found.stopped:
        said = f"{found.stopped}: writing and verifying the smallest program so far"
        takes_s = math.ceil(_VERIFYING * context.budget.check_s)
        again = _AGAIN.format(takes_s=takes_s, out=context.out)
        context.note(said + (again if found.stopped == INTERRUPTED else ""))
    operators = (found.made_of or found).reducer.best
    asked = context, server, subject, reserve_s
    found, kept = _listed_or_not(*asked, found)
    is_listed = found.made_of is not None
    if is_listed or found.reducer.best is operators or not kept.verified.always_fails:
        return found, kept
    listed = reduce_listing(context, subject, found, reserve_s)
    return (found, kept) if listed is found else _listed_or_not(*asked, listed)


_VERIFYING = 4
"""Time for three runs of a repro and the start of their process, as a number of checks.
It took 43 s when a check took 10.5 s.
"""

_AGAIN = (
    ", which takes about {takes_s} s; press Ctrl-C again to stop now without losing "
    "anything; to continue later: shrinkfx --resume {out}"
)
"""Text for the first Ctrl-C."""


def _listed_or_not(
    context: RunContext,
    server: Server,
    subject: Subject,
    reserve_s: float,
    found: SearchResult,
) -> tuple[SearchResult, Kept]:
    """Verify a result, or what it was before simplification if no repro fails."""
    asked = subject.with_options(data=found.data)
    kept = Verification(context, server, asked, found, reserve_s).run()
    if found.made_of is None or kept.verified.always_fails:
        return found, kept
    context.note(_NOT_LISTED)
    found = without_listing(
        found, "no repro of the simplified program fails in every run"
    )
    return found, Verification(context, server, subject, found, reserve_s).run()


_NOT_LISTED = (
    "no repro of the simplified program fails in every run: verifying the program "
    "before simplification"
)


def _sum_up_unverified(
    context: RunContext,
    server: Server,
    subject: Subject,
    found: SearchResult,
    reason: BaseException,
) -> None:
    """Write a summary of the smallest program, although its repro was not verified."""
    found.stopped = found.stopped or str(reason) or INTERRUPTED
    drop_issue(context.out)
    if (repro := context.out / "repro.py").exists():
        reason.add_note(f"written but not verified: {repro}")
    subject = subject.with_options(calls=found.calls)
    result = result_of(subject, found, found.reducer.best, found.rate)
    record = with_result(with_baseline(context, server, subject), result)
    record = with_end(record, context, found, subject.client.builds)
    try:
        write_summary(context.out, summarise(record))
    except OSError as error:  # the disk is full; ``reason`` remains the main error
        reason.add_note(f"could not write summary.json: {error.strerror}")
