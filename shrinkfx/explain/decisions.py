"""Reduce the compiler's decisions to those that the failure needs."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from shrinkfx.errors import BudgetExhausted
from shrinkfx.explain.bisecting import needed_applications
from shrinkfx.explain.reduced_program import ReducedProgram
from shrinkfx.explain.switching import needed_switches
from shrinkfx.explain.variants import Variants
from shrinkfx.protocol.choices import CandidateForm, Subsystem
from shrinkfx.report.explanation.decisions import Decisions

_SHORT = "the compiler decisions that the failure needs: {}"


def find_decisions(
    reduced: ReducedProgram,
    *,
    rate: float = 1.0,
    parts: Collection[Subsystem] = tuple(Subsystem),
) -> Decisions:
    """Find the compiler decisions without which the reduced program passes.

    Args:
        rate: the fraction of its runs that fail.
        parts: the parts of the compiler to test; options are tested only if all are
            given.
    """
    try:
        variants = Variants(reduced, rate).with_fast_build()
    except BudgetExhausted as error:
        return Decisions(unknown=(_SHORT.format(error),))
    decisions = _by_number(variants, Decisions(), parts)
    if set(parts) == set(Subsystem):
        decisions = _by_switches(variants, decisions)
    return replace(decisions, compilations=len(variants.answers))


def _by_number(
    variants: Variants, decisions: Decisions, parts: Collection[Subsystem]
) -> Decisions:
    variants.reduced.note("explain: skipping passes and lowerings by number")
    # The source form is what the repro compiles, so the numbers hold for the user's
    # own commands. If it does not fail, the program itself is used.
    source = variants.with_options(form=CandidateForm.SOURCE)
    result = needed_applications(source, variants, parts=parts)
    reasons = (f"passes and lowerings by number: {why}" for why in result.unknown)
    return replace(
        decisions,
        left_out=result.left_out,
        not_needed=result.not_needed,
        interpreted=variants.interpreted,
        unknown=(*decisions.unknown, *reasons),
    )


def _by_switches(variants: Variants, decisions: Decisions) -> Decisions:
    variants.reduced.note("explain: setting Inductor options to conservative values")
    why = ""
    try:
        switching = needed_switches(variants)
        decisions, why = replace(decisions, switching=switching), switching.unknown
    except BudgetExhausted as error:
        why = str(error)
    reasons = [f"Inductor options: {why}"] if why else []
    return replace(decisions, unknown=(*decisions.unknown, *reasons))
