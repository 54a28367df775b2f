"""Results that end before they are declared to: is what lies behind them the failure?

Compiled code reads such a result to its declared end, and so what others have left
behind the real one, which is another thing in each process. A failure that does not
need that must not be reduced to one that does: its repro would say "no longer fails"
where memory holds zeros, say. So checks know what lies there (``checking/tails.py`` of
the worker). Programs without such results are asked nothing.
"""

from __future__ import annotations

from dataclasses import replace

from shrinkfx.errors import BudgetExhausted
from shrinkfx.failure.signature import Stage
from shrinkfx.failure.verdict import Outcome
from shrinkfx.protocol.choices import Guard
from shrinkfx.run.context import RunContext
from shrinkfx.run.oracles import oracle_for
from shrinkfx.run.subject import Subject


def whatever_is_behind(context: RunContext, subject: Subject) -> Subject:
    """Have checks fail only if they do so whatever lies behind short results.

    Returns:
        The subject with that option; where all of the program does not fail so, with
        the operators that these are results of.
    """
    short = subject.other_causes.short
    if not short or not _may_matter(subject):
        return subject
    named = ", ".join(short)
    if context.budget.check_s > context.budget.share():
        context.note(
            "not enough time left: not testing whether the failure depends "
            f"on the memory after the results of {named}"
        )
        return subject
    asked = subject.with_options(tails=short)
    try:
        verdict = oracle_for(asked).check(subject.whole)
    except BudgetExhausted:
        return subject
    if verdict.reproduced:
        context.note(_WHATEVER.format(named))
        return asked
    if verdict.outcome is Outcome.UNRESOLVED:
        return subject
    context.note(_BY_CHANCE.format(named, verdict.observation.in_words))
    return replace(subject, by_what_is_behind=short)


def _may_matter(subject: Subject) -> bool:
    """Tell whether its checks are ours, and nothing dies where a result ends."""
    options = subject.client.options
    ran = subject.target.stage in (Stage.RUN, Stage.COMPARE)
    ours = subject.command is None and not subject.unasked
    return ran and ours and options.guard_pages is Guard.OFF


_WHATEVER = (
    "{}: the result's storage is smaller than declared. The failure does not depend "
    "on the adjacent memory, so candidates must fail with any content of that memory"
)
_BY_CHANCE = (
    "{}: the result's storage is smaller than declared. The failure depends on the "
    "adjacent memory; with known content of that memory: {}"
)
