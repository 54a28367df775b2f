"""Any set, reduced as the operators of a program are."""

from __future__ import annotations

import random
import statistics
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shrinkfx.search.bundles import Key, Probabilities, Subset

ALL = [f"option{n}" for n in range(24)]


class OfNames(Probabilities[str]):
    def about(self, item: str) -> Iterable[Key]:
        return [("name", item)]


def search(needed: set[str], count: int = len(ALL)) -> tuple[list[str], int]:
    """Find what is needed of so many, and count the questions."""
    asked: list[frozenset[str]] = []

    def holds(part: list[str]) -> bool:
        assert frozenset(part) not in asked
        asked.append(frozenset(part))
        return needed <= set(part)

    found = Subset(ALL[:count], OfNames({}, count, guess=2), holds).run()
    return found, len(asked)


@pytest.mark.parametrize(
    ("needed", "median", "most"), [(1, 7, 10), (2, 15, 18), (3, 20, 26)]
)
def test_needed_items_are_found_in_few_queries(
    needed: int, median: int, most: int
) -> None:
    draw, counts = random.Random(0), []
    for _ in range(100):
        wanted = set(draw.sample(ALL, needed))
        found, questions = search(wanted)
        assert set(found) == wanted
        counts.append(questions)
    assert statistics.median(counts) <= median
    assert max(counts) <= most


def test_reduced_subset_keeps_its_order_and_may_be_the_full_set() -> None:
    assert search(set(ALL[:4]), 4) == (ALL[:4], 6)
    found, _ = search({ALL[9], ALL[2]})
    assert found == [ALL[2], ALL[9]]


@given(st.sets(st.frozensets(st.sampled_from(ALL[:8]), min_size=1), min_size=1))
def test_reduced_subset_is_minimal(wanted: set[frozenset[str]]) -> None:
    """Whatever it holds of: of any of several parts, at times of no larger one."""

    def holds(part: list[str]) -> bool:
        if len(part) == 8:
            return True
        if wanted == {frozenset(part)}:
            return True
        return any(one <= set(part) and len(part) % 3 for one in wanted)

    kept = Subset(ALL[:8], OfNames({}, 8, guess=2), holds).run()
    assert holds(kept)
    for name in kept:
        rest = [other for other in kept if other != name]
        assert not rest or not holds(rest)
