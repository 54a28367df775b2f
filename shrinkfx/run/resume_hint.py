"""The command that resumes a run, with a larger budget if necessary."""

from __future__ import annotations

from shrinkfx.options.options import Options
from shrinkfx.run.context import RunContext


def resume_command(context: RunContext, *, larger: bool = False) -> str:
    """Return the command that resumes a run that was stopped or skipped steps.

    Args:
        larger: only a larger budget can continue the run.
    """
    takes_more = larger or context.out_of_budget
    more = larger_budget(context.options) if takes_more else ""
    return f"shrinkfx --resume {context.out} {more}".rstrip()


def larger_budget(options: Options) -> str:
    """Return the budget options that the run has, with placeholders; '' for none."""
    flags = ["--max-checks N"] if options.max_checks else []
    flags += ["--max-minutes M"] if options.max_minutes else []
    return " ".join(flags)


_Budget = tuple[int | None, float | None]


def is_larger(request: _Budget, before: _Budget) -> bool:
    """Return whether a limit that was set before is larger now."""
    pairs = zip(request, before, strict=True)
    return any(new and old and new > old for new, old in pairs)
