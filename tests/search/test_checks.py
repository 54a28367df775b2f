"""How many checks a search takes, on the programs of ``benchmarks/search.py``."""

from __future__ import annotations

from statistics import median

import pytest
from synthetic import Blame, Needles, make_case, search

GRAPHS = range(24)


@pytest.mark.parametrize(
    ("needed", "needles", "blame", "checks"),
    [
        (1, Needles.NEAR, Blame.NONE, 25),
        (3, Needles.NEAR, Blame.NONE, 36),
        (8, Needles.NEAR, Blame.NONE, 70),
        (8, Needles.SCATTERED, Blame.NONE, 130),
        (1, Needles.NEAR, Blame.GOOD, 6),
        (3, Needles.NEAR, Blame.GOOD, 18),
        (8, Needles.NEAR, Blame.GOOD, 45),
        (8, Needles.NEAR, Blame.ROUGH, 49),
        (8, Needles.NEAR, Blame.FLAT, 56),
    ],
)
def test_search_of_200_operators_stays_within_the_check_limit(
    needed: int, needles: Needles, blame: Blame, checks: int
) -> None:
    runs = [search(make_case(n, 200, needed, needles, blame)) for n in GRAPHS]
    assert median(run.checks for run in runs) <= checks
    assert all(run.minimal for run in runs)
    assert not any(run.repeated for run in runs)


@pytest.mark.parametrize(("needed", "checks"), [(1, 19), (3, 38), (8, 94)])
def test_unproductive_strategies_add_few_checks(needed: int, checks: int) -> None:
    """All of them, on programs in which no more than the needed ones can go."""
    cases = [make_case(n, 100, needed, Needles.NEAR, Blame.NONE) for n in range(8)]
    runs = [search(case, strategies=None) for case in cases]
    assert median(run.checks for run in runs) <= checks
    assert all(run.minimal for run in runs)
    assert not any(run.repeated for run in runs)


def test_search_of_5000_operators_takes_little_cpu_time() -> None:
    run = search(make_case(1, 5000, 8, Needles.NEAR, Blame.GOOD))
    assert run.checks <= 60
    assert run.cpu_ms < 50
