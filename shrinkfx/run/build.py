"""Choose the build that shows the failure, and the build step that suffices for it."""

from __future__ import annotations

from shrinkfx.check.client.server import Server
from shrinkfx.failure.signature import Kind
from shrinkfx.failure.verdict import Verdict
from shrinkfx.program.skeleton import FEEDS, Role, Skeleton
from shrinkfx.protocol.choices import (
    MANY_BYTES,
    Backend,
    Build,
    GraphForm,
    Step,
    Weights,
)
from shrinkfx.run.attempt import Attempt
from shrinkfx.run.context import RunContext
from shrinkfx.run.oracles import oracle_for
from shrinkfx.run.subject import Subject


def can_build_fast(context: RunContext, server: Server) -> bool:
    """Return whether the options and the device allow the fast build, for CPUs only."""
    ready, options = server.ready, context.options
    on_cpu = ready.backend == Backend.AOTI and not ready.for_cuda
    return on_cpu and options.build == Build.FAST and options.check is None


def place_of_weights(build: Build, program: Skeleton) -> Weights:
    """Return where a compiled program stores its weights.

    Large weights are stored next to the fast build, which would write them for each
    candidate. The stock build confirms each result with its weights inside.
    """
    nodes = map(program.node, program.graph)
    many = sum(n.nbytes for n in nodes if n.role in FEEDS - {Role.INPUT}) >= MANY_BYTES
    return Weights.BESIDE if many and build is Build.FAST else Weights.INSIDE


def choose_build(
    context: RunContext,
    program: Subject,
    evidence: str | None = None,
    known: Verdict | None = None,
) -> Attempt:
    """Choose the fast build if it fails, else the stock build if that fails.

    Args:
        evidence: a file for evidence about the culprit operators, or None.
        known: the verdict of the subject's build if it is known; None to run a check.
    """
    form = program.client.options.graph
    with_evidence = program.with_options(evidence=evidence)
    first = known or oracle_for(with_evidence).check(program.whole)
    if first.reproduced:
        chosen = _limit_to_failing_step(context, program, first)
        return Attempt(form, chosen, (first,))
    if form is GraphForm.INLINED_COND or program.build is Build.STOCK:
        return Attempt(form, None, (first,))  # the inlined form is tried only once
    stock = program.built_stock()
    second = oracle_for(stock.with_options(evidence=evidence)).check(stock.whole)
    if not second.reproduced:
        return Attempt(form, None, (first, second))
    context.note(
        "the program does not fail in the fast build: continuing with --build stock"
    )
    return Attempt(form, stock, (first, second))


def _limit_to_failing_step(
    context: RunContext, program: Subject, verdict: Verdict
) -> Subject:
    """Build candidates only up to the step that fails, if that step fails alone.

    A failure before the compiler call does not need the compiler. If the compiler
    rejects one file, candidates compile that file alone, provided this shows the
    failure of the input program.
    """
    step = verdict.observation.step
    alone = (Step.LOWERING, Step.WRAPPER, Step.KERNEL)
    if program.build is Build.STOCK or step not in alone:
        return program
    if program.target.kind is not Kind.COMPILE_ERROR:
        return program  # a timeout or a signal may occur at another step
    only = program.with_options(only=step)
    if step == Step.LOWERING:
        return only
    if verdict.observation.seconds > context.budget.share():
        return program  # the test may take more time than it saves
    return only if oracle_for(only).check(program.whole).reproduced else program
