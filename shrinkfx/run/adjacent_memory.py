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


def require_any_adjacent_memory(context: RunContext, program: Subject) -> Subject:
    """Require candidates to fail for any adjacent memory, if the input program does.

    Returns:
        The subject with that option; if the input program fails only by chance, the
        subject with the names of the operators.
    """
    short = program.other_causes.short
    if not short or not _may_read_adjacent_memory(program):
        return program
    named = ", ".join(short)
    if context.budget.check_s > context.budget.share():
        context.note(
            "not enough time left: not testing whether the failure depends "
            f"on the memory after the results of {named}"
        )
        return program
    with_tails = program.with_options(tails=short)
    try:
        verdict = oracle_for(with_tails).check(program.whole)
    except BudgetExhausted:
        return program
    if verdict.reproduced:
        context.note(_ANY_MEMORY.format(named))
        return with_tails
    if verdict.outcome is Outcome.UNRESOLVED:
        return program
    context.note(_CHANCE.format(named, verdict.observation.in_words))
    return replace(program, short_results=short)


def _may_read_adjacent_memory(program: Subject) -> bool:
    """Return whether the failure may depend on adjacent memory, and checks can tell.

    With guard pages, an access there would end the process.
    """
    options = program.client.options
    ran = program.target.stage in (Stage.RUN, Stage.COMPARE)
    ours = program.command is None and not program.not_tested
    return ran and ours and options.guard_pages is Guard.OFF


_ANY_MEMORY = (
    "{}: the result's storage is smaller than declared. The failure does not depend "
    "on the adjacent memory, so candidates must fail with any content of that memory"
)
_CHANCE = (
    "{}: the result's storage is smaller than declared. The failure depends on the "
    "adjacent memory; with known content of that memory: {}"
)
