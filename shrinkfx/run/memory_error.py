"""Choose guard pages for a run, and analyze its result with a sanitizer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from shrinkfx.check.baseline.with_guard_pages import (
    ON_CPU,
    ON_GPU,
    Guarding,
    describe_runs,
    sanitizer_settings,
    seen_without_guard_pages,
)
from shrinkfx.check.oracle import CheckClient
from shrinkfx.errors import BudgetExhausted, WorkerError
from shrinkfx.failure.classify import classify_ending
from shrinkfx.failure.readers import asan, compute_sanitizer
from shrinkfx.failure.readers.asan import MemoryReport
from shrinkfx.failure.readers.compute_sanitizer import RACE, UNINITIALIZED
from shrinkfx.failure.signature import MEMORY_FAULT, Kind, Signature, Stage
from shrinkfx.options.options import Options
from shrinkfx.program.candidate import Candidate
from shrinkfx.protocol.answers import NotSanitized, Ready
from shrinkfx.protocol.choices import Backend, CandidateForm, Guard, Weights
from shrinkfx.protocol.tasks import CheckCandidate
from shrinkfx.report.record import Memory
from shrinkfx.run.context import RunContext

_SANITIZE_TIMEOUT_S = 600.0

_CHECKS = 4
"""Minimum time for an optional check, as a number of checks."""

_SHORT = "not run: not enough time was left"


def wants_guard_pages(options: Options) -> bool:
    """Return whether a run uses guard pages, unless it runs on the interpreter."""
    if options.guard_pages == "auto":
        return options.until in (Kind.IMA, Kind.CRASH)
    return options.guard_pages == "on"


def is_on_gpu(ready: Ready) -> bool:
    """Return whether the worker runs programs on a GPU."""
    return ready.for_cuda and ready.backend == Backend.AOTI


def choose_guard_pages(context: RunContext, ready: Ready) -> Sequence[Guarding]:
    """Return the guard pages to try for the failure; none where none are available."""
    options = context.options
    if ready.backend == Backend.INTERPRETER:  # the interpreter checks each access
        return ()
    if options.sanitizer and ready.for_cuda:
        return sanitizer_settings(Guard(options.sanitizer))
    if options.sanitizer:
        context.note("--sanitizer only works on a GPU: continuing without it")
    if not wants_guard_pages(options):
        return ()
    if ready.no_guard_pages:
        context.note(f"guard pages are not available: {ready.no_guard_pages}")
        return ()
    return ON_GPU if ready.for_cuda else ON_CPU


def analyze_memory_error(
    context: RunContext,
    client: CheckClient,
    target: Signature,
    candidate: Candidate,
    form: str,
    known: str = "",
    *,
    on_gpu: bool = False,
) -> Memory:
    """Find out whether a result fails without guard pages, and in which kernel.

    Args:
        known: how it fails without guard pages in every run, if that is known.
        on_gpu: it runs on a GPU, where a sanitizer reports any illegal access.
    """
    memory = _without_guard_pages(context, client, target, candidate, form, known)
    memory = replace(memory, on_gpu=on_gpu)
    if not (memory.without_guards or (on_gpu and _is_of_the_run(target))):
        return memory
    if not context.budget.has(_CHECKS * context.budget.pace_s):
        return replace(memory, no_report=_SHORT)
    client = for_verifying(context, client, form)
    context.note(f"running the reduced program under {memory.sanitizer}")
    report, why = _sanitized(client, candidate, on_gpu=on_gpu)
    context.note(f"{memory.sanitizer}: {report or why}")
    return replace(memory, report=report, no_report=why)


def _without_guard_pages(
    context: RunContext,
    client: CheckClient,
    target: Signature,
    candidate: Candidate,
    form: str,
    known: str,
) -> Memory:
    """Find out whether a result fails without guard pages, if they may matter."""
    if client.options.guard_pages is Guard.OFF or not _is_of_the_run(target):
        return Memory()
    if known:
        return Memory(Guard.OFF, known)
    pages = client.options.guard_pages
    if not context.budget.has(_CHECKS * context.budget.pace_s):
        return Memory(pages, no_report=_SHORT)
    client = for_verifying(context, client, form)
    seen = seen_without_guard_pages(client, target, candidate)
    plain = describe_runs(seen)
    if target.admits(seen[-1].signature):
        return Memory(Guard.OFF, plain)
    silent = "does not fail" if seen[-1].is_conclusive else "is inconclusive"
    context.note(f"without guard pages the reduced program {silent}: {plain}")
    return Memory(pages, plain)


def _is_of_the_run(target: Signature) -> bool:
    return target.kind in (Kind.IMA, Kind.CRASH) and (
        target.detail in (MEMORY_FAULT, UNINITIALIZED, RACE)
        and target.stage is Stage.RUN
    )


def for_verifying(context: RunContext, client: CheckClient, form: str) -> CheckClient:
    """Return a client for this form whose checks count as verification."""
    client = client.with_options(form=CandidateForm(form))
    return client.with_limits(client.limits, context.meters["verify"])


def _sanitized(
    client: CheckClient, candidate: Candidate, *, on_gpu: bool
) -> tuple[MemoryReport | None, str]:
    """Run a candidate once under AddressSanitizer, or a tool for GPUs.

    Returns:
        The report, or None and the reason.
    """
    limits = replace(client.limits, timeout_s=_SANITIZE_TIMEOUT_S)
    client = replace(client, patience=None).with_limits(limits, client.meter)
    client = client.with_options(only=None, weights=Weights.INSIDE)
    guard = client.options.guard_pages
    tool = guard if guard.is_sanitizer else Guard.MEMCHECK
    pages = tool if on_gpu else Guard.OFF
    try:
        ending = client.with_options(guard_pages=pages, sanitize=not on_gpu).ask(
            CheckCandidate(candidate.to_json()), fresh=True
        )
    except WorkerError as error:
        return None, str(error.reason)
    except BudgetExhausted:
        return None, _SHORT
    if isinstance(ending.answer, NotSanitized):
        return None, ending.answer.why
    report = (
        compute_sanitizer.parse_sanitizer_report if on_gpu else asan.parse_asan_report
    )(ending.log)
    seen = classify_ending(ending)
    no_report = seen.unresolved or f"no report; outcome of the run: {seen.in_words}"
    return report, "" if report else no_report
