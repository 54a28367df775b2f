"""What could several jobs save at most? ``python benchmarks/foreseen_bounds.py``

Searches through the programs of ``synthetic.py`` as ``foreseeing.py`` does. But how
probable an answer is, is said by somebody who knows more than a search does:

    odds      what a search goes by
    count     how many operators are needed, and how many contexts hide that: the exact
              posterior over all sets of so many, given all answers
    places    how the needed operators were drawn, too: the posterior over 60,000 draws
    needed    which operators are needed, but not which contexts hide that
    answers   all

What is asked ahead is always the most probable, the best choice for what one round
yields. Prints how many times fewer rounds a search takes than with one job.
"""

from __future__ import annotations

import argparse
import contextlib
import random
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import combinations
from statistics import mean
from unittest.mock import patch

import numpy as np
import numpy.typing as npt
from rounds import search
from synthetic import HIDING, Blame, Case, Needles, make_case, near

from shrinkfx.failure.verdict import Outcome
from shrinkfx.program.candidate import Candidate
from shrinkfx.search.search_state import SearchState

Chance = Callable[[SearchState], float]
Answered = tuple[frozenset[str], bool]
"""What was kept, and whether it failed."""

_DRAWS = 60_000
_SURE = 1e-6


class Posterior:
    """The sets of operators that may be needed, by their weights before any answer."""

    def __init__(self, case: Case, weights: Counter[tuple[str, ...]]) -> None:
        self._number = {name: n for n, name in enumerate(case.program.operators)}
        sets = [[self._number[name] for name in names] for names in weights]
        self._sets = np.array(sets, dtype=np.int16)
        self._weights = np.array([*weights.values()], dtype=float)
        self._least = len(case.needed)
        self._known: dict[tuple[Answered, ...], npt.NDArray[np.float64]] = {}

    def chance(self, candidate: Candidate, path: tuple[Answered, ...]) -> float:
        weights = self._given(path)
        keep = frozenset(candidate.keep)
        shows = 1.0 if len(keep) == self._least else 1 - HIDING
        total = float(weights.sum())
        found = float(weights[self._within(keep)].sum())
        return shows * found / total if total else 0.5

    def _given(self, path: tuple[Answered, ...]) -> npt.NDArray[np.float64]:
        """Weigh the sets by all answers."""
        if not path:
            return self._weights
        if path not in self._known:
            keep, fails = path[-1]
            others = 0.0 if fails else 1.0
            hidden = 1.0 if fails else HIDING * (len(keep) != self._least)
            factor = np.where(self._within(keep), hidden, others)
            self._known[path] = self._given(path[:-1]) * factor
        return self._known[path]

    def _within(self, keep: frozenset[str]) -> npt.NDArray[np.bool_]:
        mask: npt.NDArray[np.bool_] = np.zeros(len(self._number), dtype=bool)
        mask[[self._number[name] for name in keep]] = True
        within: npt.NDArray[np.bool_] = np.all(mask[self._sets], axis=1)
        return within


def by_count(case: Case) -> Posterior:
    return Posterior(
        case, Counter(combinations(case.program.operators, len(case.needed)))
    )


def by_places(case: Case) -> Posterior:
    draw, operators = random.Random(1), case.program.operators
    drawn = Counter([tuple(case.program.in_order(case.needed))])
    for _ in range(_DRAWS):
        with contextlib.suppress(IndexError):  # of an operator without neighbours
            found = near(case.program, [draw.choice(operators)], len(case.needed), draw)
            drawn[tuple(case.program.in_order(found))] += 1
    return Posterior(case, drawn)


def knowing(case: Case, what: str) -> Chance | None:
    """Make what says how probable it is that a question's candidate fails."""
    posterior = {"count": by_count, "places": by_places}
    if what in posterior:
        return _by_path(posterior[what](case))
    if what == "odds":
        return None

    def chance(course: SearchState) -> float:
        question = course.next_query()
        assert question is not None
        keep = frozenset(question.candidate.keep)
        if what == "answers":
            return float(case.fails(keep))
        shows = 1.0 if len(keep) == len(case.needed) else 1 - HIDING
        return shows * (case.needed <= keep)

    return chance


def _by_path(posterior: Posterior) -> Chance:
    def chance(course: SearchState) -> float:
        question = course.next_query()
        assert question is not None
        return posterior.chance(question.candidate, getattr(course, "path", ()))

    return chance


@contextlib.contextmanager
def foretold(chance: Chance | None) -> Iterator[None]:
    """Have courses say how probable answers are in this way, and keep their path."""
    answer = SearchState.answer

    def answered(course: SearchState, outcome: Outcome) -> bool:
        question = course.next_query()
        assert question is not None
        told = frozenset(question.candidate.keep), outcome is Outcome.REPRODUCED
        course.path = (*getattr(course, "path", ()), told)  # type: ignore[attr-defined]
        return answer(course, outcome)

    def sure(course: SearchState) -> float:
        assert chance is not None
        return min(max(chance(course), _SURE), 1 - _SURE)

    with contextlib.ExitStack() as stack:
        if chance is not None:
            stack.enter_context(patch.object(SearchState, "answer", answered))
            stack.enter_context(patch.object(SearchState, "chance", sure))
        yield


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--graphs", type=int, default=24, metavar="N")
    parser.add_argument("--operators", type=int, default=50, metavar="N")
    parser.add_argument("--needed", type=int, default=3, metavar="N")
    whom = ["odds", "count", "places", "needed", "answers"]
    parser.add_argument("--knowing", nargs="+", choices=whom, default=whom)
    options = parser.parse_args()
    cases = [
        make_case(number, options.operators, options.needed, Needles.NEAR, Blame.NONE)
        for number in range(options.graphs)
    ]
    alone = [search(case, 1).rounds for case in cases]
    print(f"{'':8} 2 jobs 4 jobs 8 jobs")
    for what in options.knowing:
        fewer: dict[int, list[float]] = {2: [], 4: [], 8: []}
        for case, rounds in zip(cases, alone, strict=True):
            with foretold(knowing(case, what)):
                for jobs, found in fewer.items():
                    found.append(rounds / search(case, jobs).rounds)
        means = (f"{mean(found):6.2f}" for found in fewer.values())
        print(f"{what:8}", *means, flush=True)


if __name__ == "__main__":
    main()
