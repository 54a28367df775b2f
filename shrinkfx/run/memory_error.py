"""Guard pages around a run, and what AddressSanitizer says of its result."""

from __future__ import annotations

from dataclasses import replace

from shrinkfx.check.baseline.stock import describe
from shrinkfx.check.baseline.with_guard_pages import (
    Guarding,
    find_guarding,
    in_words,
    seen_without_guard_pages,
)
from shrinkfx.check.client.server import Server
from shrinkfx.check.oracle import CheckClient
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
from shrinkfx.run.context import RunContext

_SANITIZE_TIMEOUT_S = 600.0

_CHECKS = 4
"""Checks' worth of time that there must be left for one that nothing hangs on."""

_SHORT = "not run: minutes were short"


def wants_guard_pages(options: Options) -> bool:
    """Tell whether a run is to have guard pages, if its program is on the CPU."""
    if options.guard_pages == "auto":
        return options.until in (Kind.IMA, Kind.CRASH)
    return options.guard_pages == "on"


def guard(context: RunContext, server: Server, client: CheckClient) -> Guarding:
    """Choose the guard pages that show the failure which was asked for, if any do."""
    options, ready = context.options, server.ready
    if not wants_guard_pages(options) or ready.for_cuda:
        return Guarding()
    if ready.no_guard_pages:
        context.note(f"no guard pages: {ready.no_guard_pages}")
        return Guarding()
    asked = options.until, options.match, context.note, context.budget
    return find_guarding(client, *asked)


def examine(
    context: RunContext,
    client: CheckClient,
    target: Signature,
    best: Candidate,
    form: str,
    known: str = "",
) -> Memory:
    """Find out whether a result fails without guard pages, and in which kernel.

    Args:
        known: how it fails without them in every run, if that has been seen.
    """
    memory = _without_guard_pages(context, client, target, best, form, known)
    if not memory.plain:
        return memory
    if not context.budget.has(_CHECKS * context.budget.pace_s):
        return replace(memory, no_report=_SHORT)
    client = _for_verifying(context, client, form)
    context.note("running the result under AddressSanitizer")
    report, why = _sanitized(client, best)
    context.note(f"AddressSanitizer: {report or why}")
    return replace(memory, report=report, no_report=why)


def _without_guard_pages(
    context: RunContext,
    client: CheckClient,
    target: Signature,
    best: Candidate,
    form: str,
    known: str,
) -> Memory:
    """Find out whether a result fails without guard pages, if those may matter."""
    at_run_time = target.detail == MEMORY and target.stage is Stage.RUN
    if client.options.guard_pages is Guard.OFF or not at_run_time:
        return Memory()
    if known:
        return Memory(Guard.OFF, known)
    pages = client.options.guard_pages
    if not context.budget.has(_CHECKS * context.budget.pace_s):
        return Memory(pages, no_report=_SHORT)
    client = _for_verifying(context, client, form)
    seen = seen_without_guard_pages(client, target, best)
    plain = in_words(seen)
    if target.admits(seen[-1].signature):
        return Memory(Guard.OFF, plain)
    silent = "is silent" if seen[-1].tells else "has no answer"
    context.note(f"without guard pages the result {silent}: {plain}")
    return Memory(pages, plain)


def _for_verifying(context: RunContext, client: CheckClient, form: str) -> CheckClient:
    client = client.built_stock().with_options(form=CandidateForm(form))
    return client.with_limits(client.limits, context.meters["verify"])


def _sanitized(client: CheckClient, best: Candidate) -> tuple[MemoryReport | None, str]:
    patient = replace(client.limits, timeout_s=_SANITIZE_TIMEOUT_S)
    client = client.with_limits(patient, client.meter)
    try:
        ending = client.with_options(guard_pages=Guard.OFF, sanitize=True).ask(
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
