"""Test whether a failure depends on the memory after a storage that is too small.

An operator may return a storage that is smaller than its fake kernel declares. Compiled
code reads up to the declared end, so it reads adjacent memory, whose content differs
between processes. A failure that does not depend on that memory must not be reduced to
one that does, because its repro would pass where the memory happens to hold zeros. So
checks fill the adjacent memory with known values (``checking/tails.py`` of the worker).
Programs without such operators are not tested.
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


def require_any_adjacent_memory(context: RunContext, subject: Subject) -> Subject:
    """Require candidates to fail for any adjacent memory, if the input program does.

    Returns:
        The subject with that option; if the input program fails only by chance, the
        subject with the names of the operators.
    """
    short = subject.other_causes.short
    if not short or not _may_read_adjacent_memory(subject):
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
    return replace(subject, short_results=short)


def _may_read_adjacent_memory(subject: Subject) -> bool:
    """Return whether the failure may depend on adjacent memory, and checks can tell.

    With guard pages, an access there would end the process.
    """
    options = subject.client.options
    ran = subject.target.stage in (Stage.RUN, Stage.COMPARE)
    ours = subject.command is None and not subject.not_tested
    return ran and ours and options.guard_pages is Guard.OFF


_WHATEVER = (
    "{}: the result's storage is smaller than declared. The failure does not depend "
    "on the adjacent memory, so candidates must fail with any content of that memory"
)
_BY_CHANCE = (
    "{}: the result's storage is smaller than declared. The failure depends on the "
    "adjacent memory; with known content of that memory: {}"
)
