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
    minimum: ReducedProgram,
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
        variants = Variants(minimum, rate).with_fast_build()
    except BudgetExhausted as short:
        return Decisions(unknown=(_SHORT.format(short),))
    found = _by_number(variants, Decisions(), parts)
    if set(parts) == set(Subsystem):
        found = _by_switches(variants, found)
    return replace(found, compilations=len(variants.answers))


def _by_number(
    variants: Variants, found: Decisions, parts: Collection[Subsystem]
) -> Decisions:
    variants.reduced.note("explain: skipping passes and lowerings by number")
    # The source form is what the repro compiles, so the numbers hold for the user's
    # own commands. If it does not fail, the program itself is used.
    source = variants.with_options(form=CandidateForm.SOURCE)
    known = needed_applications(source, variants, parts=parts)
    told = (f"passes and lowerings by number: {why}" for why in known.unknown)
    return replace(
        found,
        left_out=known.left_out,
        not_needed=known.not_needed,
        interpreted=variants.interpreted,
        unknown=(*found.unknown, *told),
    )


def _by_switches(variants: Variants, found: Decisions) -> Decisions:
    variants.reduced.note("explain: setting Inductor options to conservative values")
    why = ""
    try:
        switching = needed_switches(variants)
        found, why = replace(found, switching=switching), switching.unknown
    except BudgetExhausted as short:
        why = str(short)
    told = [f"Inductor options: {why}"] if why else []
    return replace(found, unknown=(*found.unknown, *told))
