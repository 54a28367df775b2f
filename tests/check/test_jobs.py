"""How many candidates are asked about at once."""

from __future__ import annotations

import pytest

from shrinkfx.check.jobs import MOST, jobs_that_fit, usual_jobs

GB = 1 << 30


@pytest.mark.parametrize(
    ("cores", "jobs"), [(1, 1), (2, 1), (3, 1), (4, 2), (6, 3), (8, 4), (64, MOST)]
)
def test_half_the_cores_are_used_and_no_more_than_pay(cores: int, jobs: int) -> None:
    assert usual_jobs(cores) == jobs


def test_cores_are_those_that_may_be_used() -> None:
    assert 1 <= usual_jobs() <= MOST


@pytest.mark.parametrize(
    ("peak", "free", "jobs"), [(GB, 8 * GB, 8), (3 * GB, 8 * GB, 2), (9 * GB, GB, 1)]
)
def test_they_are_as_many_as_there_is_memory_for(
    peak: int, free: int, jobs: int
) -> None:
    assert jobs_that_fit(peak, free) == jobs


def test_memory_that_nobody_has_measured_is_no_bound() -> None:
    assert jobs_that_fit(0, 8 * GB) > 99
