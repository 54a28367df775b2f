"""How many candidates are asked about at once."""

from __future__ import annotations

import pytest

from shrinkfx.check.jobs import MOST, usual_jobs

GB = 1 << 30


@pytest.mark.parametrize(
    ("cores", "jobs"), [(1, 1), (2, 1), (3, 1), (4, 2), (6, 3), (8, 4), (64, MOST)]
)
def test_half_the_cores_are_used_and_no_more_than_pay(cores: int, jobs: int) -> None:
    assert usual_jobs(GB, 999 * GB, cores) == jobs


@pytest.mark.parametrize(
    ("peak", "free", "jobs"),
    [(GB, 8 * GB, 4), (3 * GB, 8 * GB, 2), (5 * GB, 8 * GB, 1), (9 * GB, 8 * GB, 1)],
)
def test_they_are_as_many_as_there_is_memory_for(
    peak: int, free: int, jobs: int
) -> None:
    assert usual_jobs(peak, free, 64) == jobs


def test_memory_that_nobody_has_measured_is_no_bound() -> None:
    assert usual_jobs(0, 8 * GB, 4) == 2


def test_cores_are_those_that_may_be_used() -> None:
    assert 1 <= usual_jobs(GB, 999 * GB) <= MOST
