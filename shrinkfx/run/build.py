"""Which build shows the failure, and how much of it is needed for that."""

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
    """Tell whether the user lets us, and candidates are compiled here for the CPU."""
    ready, options = server.ready, context.options
    on_cpu = ready.backend == Backend.AOTI and not ready.for_cuda
    return on_cpu and options.build == Build.FAST and options.check is None


def place_of_weights(build: Build, program: Skeleton) -> Weights:
    """Say where a compiled program's weights are: many would be written over and over.

    Whatever is built fast is confirmed in the stock build, with its weights inside.
    """
    nodes = map(program.node, program.graph)
    many = sum(n.nbytes for n in nodes if n.role in FEEDS - {Role.INPUT}) >= MANY_BYTES
    return Weights.BESIDE if many and build is Build.FAST else Weights.INSIDE


def choose_build(
    context: RunContext,
    subject: Subject,
    evidence: str | None = None,
    known: Verdict | None = None,
) -> Attempt:
    """Choose the fast build, or else the stock one, if either fails.

    Args:
        evidence: a file for what the failure may come from, or None.
        known: what the subject's build has shown already; None to ask.
    """
    form = subject.client.options.graph
    asked = subject.with_options(evidence=evidence)
    first = known or oracle_for(asked).check(subject.whole)
    if first.reproduced:
        chosen = _asking_only_what_fails(context, subject, first)
        return Attempt(form, chosen, (first,))
    if form is GraphForm.INLINED_COND or subject.build is Build.STOCK:
        return Attempt(form, None, (first,))  # without cond it is worth one question
    stock = subject.built_stock()
    second = oracle_for(stock.with_options(evidence=evidence)).check(stock.whole)
    if not second.reproduced:
        return Attempt(form, None, (first, second))
    context.note(
        "the program does not fail in the fast build: continuing with --build stock"
    )
    return Attempt(form, stock, (first, second))


def _asking_only_what_fails(
    context: RunContext, subject: Subject, whole: Verdict
) -> Subject:
    """Have candidates built no further than to the step that fails.

    What has raised before the compiler was called will not need it. A file that the
    compiler refuses is checked alone, if that shows the failure of the whole.
    """
    step = whole.observation.step
    alone = (Step.LOWERING, Step.WRAPPER, Step.KERNEL)
    if subject.build is Build.STOCK or step not in alone:
        return subject
    if subject.target.kind is not Kind.COMPILE_ERROR:
        return subject  # a time limit, or a signal: it might strike elsewhere
    only = subject.with_options(only=step)
    if step == Step.LOWERING:
        return only
    if whole.observation.seconds > context.budget.share():
        return subject  # to ask might take more than it saves
    return only if oracle_for(only).check(subject.whole).reproduced else subject
