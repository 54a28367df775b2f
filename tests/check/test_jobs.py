"""How many candidates are asked about at once."""

from __future__ import annotations

import pytest

from shrinkfx.check.limits import MOST, jobs_that_fit, usual_jobs

GB = 1 << 30


@pytest.mark.parametrize(
    ("cores", "jobs"), [(1, 1), (2, 1), (3, 1), (4, 2), (6, 3), (8, 4), (64, MOST)]
)
def test_default_jobs_are_half_the_cores_up_to_a_maximum(cores: int, jobs: int) -> None:
    assert usual_jobs(cores) == jobs


def test_default_jobs_use_the_available_cores() -> None:
    assert 1 <= usual_jobs() <= MOST


@pytest.mark.parametrize(
    ("peak", "free", "jobs"), [(GB, 8 * GB, 8), (3 * GB, 8 * GB, 2), (9 * GB, GB, 1)]
)
def test_jobs_are_bounded_by_free_memory(peak: int, free: int, jobs: int) -> None:
    assert jobs_that_fit(peak, free) == jobs


def test_unmeasured_peak_memory_does_not_bound_jobs() -> None:
    assert jobs_that_fit(0, 8 * GB) > 99
