"""Guard pages around a run, and what AddressSanitizer says of its result."""

from __future__ import annotations

from dataclasses import replace

from shrinkfx.check.baseline.stock import describe
from shrinkfx.check.baseline.with_guard_pages import (
    Guarding,
    find_guarding,
    in_words,
    seen_plainly,
)
from shrinkfx.check.client.server import Server
from shrinkfx.check.oracle import Compiler
from shrinkfx.errors import BudgetExhausted, WorkerError
from shrinkfx.failure.classify import observe
from shrinkfx.failure.readers.asan import MemoryReport, parse
from shrinkfx.failure.signature import MEMORY, Kind, Signature, Stage
from shrinkfx.options.options import Options
from shrinkfx.program.candidate import Candidate
from shrinkfx.protocol.answers import NotSanitized
from shrinkfx.protocol.choices import CandidateForm, Guard
from shrinkfx.protocol.tasks import CheckCandidate
from shrinkfx.report.record import Memory
from shrinkfx.run.context import Job

_SANITIZE_TIMEOUT_S = 600.0

_CHECKS = 4
"""Checks' worth of time that there must be left for one that nothing hangs on."""

_SHORT = "not run: minutes were short"


def wants_guard_pages(options: Options) -> bool:
    """Tell whether a run is to have guard pages, if its program is on the CPU."""
    if options.guard_pages == "auto":
        return options.until in (Kind.IMA, Kind.CRASH)
    return options.guard_pages == "on"


def guard(job: Job, server: Server, compiler: Compiler) -> Guarding:
    """Choose the guard pages that show the failure which was asked for, if any do."""
    options, ready = job.options, server.ready
    if not wants_guard_pages(options) or ready.environment:
        return Guarding()
    if ready.no_guard_pages:
        job.note(f"no guard pages: {ready.no_guard_pages}")
        return Guarding()
    asked = options.until, options.match, job.note, job.budget
    return find_guarding(compiler, *asked)


def examine(
    job: Job,
    compiler: Compiler,
    target: Signature,
    best: Candidate,
    form: str,
    known: str = "",
) -> Memory:
    """Find out whether a result fails without guard pages, and in which kernel.

    Args:
        known: how it fails without them in every run, if that has been seen.
    """
    memory = _without_guard_pages(job, compiler, target, best, form, known)
    if not memory.plain:
        return memory
    if not job.budget.has(_CHECKS * job.budget.pace_s):
        return replace(memory, no_report=_SHORT)
    compiler = _for_verifying(job, compiler, form)
    job.note("running the result under AddressSanitizer")
    report, why = _sanitized(compiler, best)
    job.note(f"AddressSanitizer: {report or why}")
    return replace(memory, report=report, no_report=why)


def _without_guard_pages(
    job: Job,
    compiler: Compiler,
    target: Signature,
    best: Candidate,
    form: str,
    known: str,
) -> Memory:
    """Find out whether a result fails without guard pages, if those may matter."""
    at_run_time = target.detail == MEMORY and target.stage is Stage.RUN
    if compiler.options.guard_pages is Guard.OFF or not at_run_time:
        return Memory()
    if known:
        return Memory(Guard.OFF, known)
    pages = compiler.options.guard_pages
    if not job.budget.has(_CHECKS * job.budget.pace_s):
        return Memory(pages, no_report=_SHORT)
    compiler = _for_verifying(job, compiler, form)
    seen = seen_plainly(compiler, target, best)
    plain = in_words(seen)
    if target.admits(seen[-1].signature):
        return Memory(Guard.OFF, plain)
    silent = "is silent" if seen[-1].tells else "has no answer"
    job.note(f"without guard pages the result {silent}: {plain}")
    return Memory(pages, plain)


def _for_verifying(job: Job, compiler: Compiler, form: str) -> Compiler:
    compiler = compiler.built_stock().with_options(form=CandidateForm(form))
    return compiler.with_limits(compiler.limits, job.meters["verify"])


def _sanitized(compiler: Compiler, best: Candidate) -> tuple[MemoryReport | None, str]:
    patient = replace(compiler.limits, timeout_s=_SANITIZE_TIMEOUT_S)
    compiler = compiler.with_limits(patient, compiler.meter)
    try:
        ending = compiler.with_options(guard_pages=Guard.OFF, sanitize=True).ask(
            CheckCandidate(best.to_json()), fresh=True
        )
    except WorkerError as error:
        return None, str(error.reason)
    except BudgetExhausted:
        return None, _SHORT
    if isinstance(ending.answer, NotSanitized):
        return None, ending.answer.why
    report = parse(ending.log)
    nothing = f"no report; under it: {describe(observe(ending))}"
    return report, "" if report else nothing
