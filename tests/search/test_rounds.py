"""How many rounds several jobs save, on the programs of ``benchmarks/search.py``."""

from __future__ import annotations

from statistics import mean

import pytest
from rounds import search
from synthetic import Blame, Needles, make_case

CASES = [
    make_case(number, operators, needed, Needles.NEAR, Blame.NONE)
    for operators in (50, 200)
    for needed in (3, 8)
    for number in range(6)
]


@pytest.mark.parametrize(
    ("jobs", "fewer", "more"), [(2, 1.6, 1.25), (4, 2.3, 1.75), (8, 3.2, 2.5)]
)
def test_parallel_jobs_reduce_the_number_of_rounds(
    jobs: int, fewer: float, more: float
) -> None:
    alone = [search(case, 1) for case in CASES]
    runs = [search(case, jobs) for case in CASES]
    assert [run.result for run in runs] == [one.result for one in alone]
    assert all(one.rounds == one.asked == one.answers for one in alone)
    rounds = zip(alone, runs, strict=True)
    assert mean(one.rounds / run.rounds for one, run in rounds) >= fewer
    assert mean(run.asked / run.answers for run in runs) <= more
