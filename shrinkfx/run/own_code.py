"""Find out which of the user's code in the compiler a failure needs.

    bare      without any of it: if the failure remains, the code is not to blame
    narrowed  the part that remains after halves, then smaller parts, are removed
    the rest  all that preloads have registered

A narrowed part is judged by whether the failure shows, because eager runs none of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from shrinkfx.errors import BudgetExhausted
from shrinkfx.report.custom_code_sources import find_custom_code
from shrinkfx.report.preload_bundle import PreloadBundle, PreloadCut, Unit
from shrinkfx.run.preload_effects import PreloadOracle
from shrinkfx.run.preload_trials import Trials, cut_without_units, find_droppable_units
from shrinkfx.search.budget import Budget

MAX_QUESTIONS = 16
"""Maximum number of queries. They find one of up to eight statements, or two of
four.
"""

_RUNS_THAT_FOLLOW = 8
"""Runs of a repro for which there must be time after each query."""


def yield_bare_cut_first(
    cuts: Sequence[PreloadCut], trials: Trials
) -> Iterator[PreloadCut]:
    """Yield first a cut that leaves the compiler as it is, then all others.

    If the repro of that cut fails, the user's code in the compiler is not to blame; if
    it does not, the failure needs that code.
    """
    user_code, first, least = trials.last.own, cuts[0], _smallest_cheap_cut(cuts)
    units = trials.made(least).units
    trials = replace(trials, besides=user_code)
    dropped = find_droppable_units(
        units, lambda some: trials.suffice(_less(least, some)), trials.judge
    )
    custom = find_custom_code(user_code, dropped)
    if dropped and not trials.last.own:
        as_first = replace(
            _less(least, dropped), compiles=first.compiles, joined=first.joined
        )
        yield replace(as_first, modules=first.modules, files=first.files, bare=True)
    yield from (replace(cut, in_compiler=custom) for cut in cuts)


def _smallest_cheap_cut(cuts: Sequence[PreloadCut]) -> PreloadCut:
    """Return the smallest cut that does not compile C++ when it starts."""
    return next(cut for cut in cuts if not (cut.compiles or cut.bare))


def _less(cut: PreloadCut, gone: Sequence[Unit]) -> PreloadCut:
    units = cut_without_units(gone)
    return replace(
        cut, acts=cut.acts | units.acts, preloads=cut.preloads | units.preloads
    )


@dataclass
class CompilerCodeQueries:
    """Queries whether the failure shows with preloads carried in some way.

    Attributes:
        fails: runs a script with these preloads; returns None without a verdict.
        queries: number of queries.
    """

    fails: Callable[[PreloadBundle], bool | None]
    budget: Budget
    queries: int = 0
    _is_over: bool = False

    @property
    def is_tired(self) -> bool:
        needed = _RUNS_THAT_FOLLOW * self.budget.pace_s
        exhausted = self._is_over or self.queries >= MAX_QUESTIONS
        return exhausted or not self.budget.has(needed)

    def is_enough(self, carried: PreloadBundle) -> bool:
        """Return whether the failure shows with these preloads; False if unknown."""
        self.queries += 1
        try:
            return bool(self.fails(carried))
        except BudgetExhausted:  # the repro has yet to be written
            self._is_over = True
            return False


def add_narrowed_cuts(
    cuts: Sequence[PreloadCut],
    made: Callable[[PreloadCut], PreloadBundle],
    questions: CompilerCodeQueries,
    judge: PreloadOracle,
) -> list[PreloadCut]:
    """Add cuts with only the user's code in the compiler that the failure needs.

    A single place in the compiler is not tested.

    Args:
        cuts: the first one is bare, if there is code that can be removed.
    """
    bare, *rest = cuts
    if not bare.bare or len(rest[0].in_compiler.places) < _LEAST_TO_CHOOSE_FROM:
        return [*cuts]
    first, least = rest[0], _smallest_cheap_cut(rest)
    acts = bare.acts - least.acts
    names = bare.preloads - least.preloads
    units = [u for u in made(least).units if u in acts or (u[0] in names and not u[1])]
    dropped = find_droppable_units(
        units, lambda some: questions.is_enough(made(_less(least, some))), questions
    )
    if (
        not 0 < len(dropped) < len(units)
    ):  # all is needed, or the bare cut seems to fail
        return [*cuts]
    effect = None if judge.is_tired else judge.effect(made(_less(least, dropped)))
    remaining = effect.own & set(first.in_compiler.places) if effect else None
    if not remaining:
        return [*cuts]
    custom = find_custom_code(
        remaining, [unit for unit in units if unit not in dropped]
    )
    ways = (replace(_less(c, dropped), in_compiler=custom) for c in (first, least))
    return [bare, *dict.fromkeys(ways), *rest]


_LEAST_TO_CHOOSE_FROM = 2
