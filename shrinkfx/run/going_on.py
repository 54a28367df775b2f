"""What a run that was stopped or short goes on with, and what to type for that."""

from __future__ import annotations

from shrinkfx.options.options import Options
from shrinkfx.run.context import RunContext


def how_to_go_on(context: RunContext, *, larger: bool = False) -> str:
    """Give the command that goes on with a search which was stopped, or was short.

    Args:
        larger: only a larger budget goes on.
    """
    takes_more = larger or context.out_of_budget
    more = larger_budget(context.options) if takes_more else ""
    return f"shrinkfx --resume {context.out} {more}".rstrip()


def larger_budget(options: Options) -> str:
    """Name the options that a run was told of its budget, for larger numbers; or ''."""
    told = ["--max-checks N"] if options.max_checks else []
    told += ["--max-minutes M"] if options.max_minutes else []
    return " ".join(told)


_Budget = tuple[int | None, float | None]


def is_larger(given: _Budget, before: _Budget) -> bool:
    """Tell whether more is given of what there was too little of."""
    pairs = zip(given, before, strict=True)
    return any(new and old and new > old for new, old in pairs)
