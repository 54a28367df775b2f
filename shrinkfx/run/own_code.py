"""Find out which code of a user's own in the compiler a failure needs.

    bare      none of it: if that fails, it is not to blame
    narrowed  what is left where halves of it, then less, are left out
    the rest  all that preloads have put there

What is asked of a narrowed one is whether the failure shows; eager sees none of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from shrinkfx.errors import BudgetExhausted
from shrinkfx.report.carried import Carried, Cut, Unit
from shrinkfx.report.whose_code import in_compiler
from shrinkfx.run.preload_effects import PreloadOracle
from shrinkfx.run.preload_trials import Trials, droppable, without
from shrinkfx.search.budget import Budget

MAX_QUESTIONS = 16
"""About which code it is: of up to eight statements one is found, or two of four."""

_RUNS_THAT_FOLLOW = 8
"""Runs of a repro for which there is time after each question."""


def first_without_own(cuts: Sequence[Cut], trials: Trials) -> Iterator[Cut]:
    """Put before all others what leaves the compiler as it is.

    If its repro fails, code of a user's own there is not to blame; if it does not, that
    code is what the failure needs.
    """
    own, first, least = trials.last.own, cuts[0], _asked_about_soon(cuts)
    units = trials.made(least).units
    trials = replace(trials, besides=own)
    gone = droppable(
        units, lambda some: trials.suffice(_less(least, some)), trials.judge
    )
    found = in_compiler(own, gone)
    if gone and not trials.last.own:
        as_first = replace(
            _less(least, gone), compiles=first.compiles, joined=first.joined
        )
        yield replace(as_first, modules=first.modules, files=first.files, bare=True)
    yield from (replace(cut, in_compiler=found) for cut in cuts)


def _asked_about_soon(cuts: Sequence[Cut]) -> Cut:
    """Choose the smallest that compiles nothing as it begins."""
    return next(cut for cut in cuts if not (cut.compiles or cut.bare))


def _less(cut: Cut, gone: Sequence[Unit]) -> Cut:
    more = without(gone)
    return replace(
        cut, acts=cut.acts | more.acts, preloads=cut.preloads | more.preloads
    )


@dataclass
class Questions:
    """Asks whether the failure shows with preloads carried in some way.

    Attributes:
        fails: as of a script; None if that had no answer.
        asked: how many were.
    """

    fails: Callable[[Carried], bool | None]
    budget: Budget
    asked: int = 0
    _is_over: bool = False

    @property
    def is_tired(self) -> bool:
        needed = _RUNS_THAT_FOLLOW * self.budget.pace_s
        asked_enough = self._is_over or self.asked >= MAX_QUESTIONS
        return asked_enough or not self.budget.has(needed)

    def is_enough(self, carried: Carried) -> bool:
        """Tell whether it fails with that; not if nobody knows."""
        self.asked += 1
        try:
            return bool(self.fails(carried))
        except BudgetExhausted:  # what is known has yet to be written
            self._is_over = True
            return False


def with_least_own(
    cuts: Sequence[Cut],
    made: Callable[[Cut], Carried],
    questions: Questions,
    judge: PreloadOracle,
) -> list[Cut]:
    """Add ways with no more of a user's own in the compiler than the failure needs.

    Nothing is asked where one thing is all that there is.

    Args:
        cuts: with a bare one first, if there is own code that can be left out.
    """
    bare, *rest = cuts
    if not bare.bare or len(rest[0].in_compiler.places) < _LEAST_TO_CHOOSE_FROM:
        return [*cuts]
    first, least = rest[0], _asked_about_soon(rest)
    own = bare.acts - least.acts
    names = bare.preloads - least.preloads
    units = [u for u in made(least).units if u in own or (u[0] in names and not u[1])]
    gone = droppable(
        units, lambda some: questions.is_enough(made(_less(least, some))), questions
    )
    if not 0 < len(gone) < len(units):  # all is needed, or the bare one seems to fail
        return [*cuts]
    effect = None if judge.is_tired else judge.effect(made(_less(least, gone)))
    left = effect.own & set(first.in_compiler.places) if effect else None
    if not left:
        return [*cuts]
    found = in_compiler(left, [unit for unit in units if unit not in gone])
    ways = (replace(_less(c, gone), in_compiler=found) for c in (first, least))
    return [bare, *dict.fromkeys(ways), *rest]


_LEAST_TO_CHOOSE_FROM = 2
