"""The number of candidates that are checked in parallel."""

from __future__ import annotations

from shrinkfx.system.processes import count_usable_cores

MOST = 4
"""The maximum, because answers to further speculative queries are rarely used."""


def usual_jobs(cores: int | None = None) -> int:
    """Return half of the cores, at most ``MOST``.

    The other half is for compilers and programs, which have threads of their own.

    Args:
        cores: None for the cores that this process may use.

    >>> [usual_jobs(cores) for cores in (1, 2, 4, 16)]
    [1, 1, 2, 4]
    """
    half = (count_usable_cores() if cores is None else cores) // 2
    return max(1, min(MOST, half))


def jobs_that_fit(peak_bytes: int, free_bytes: int) -> int:
    """Return how many checks fit into memory at once; at least 1.

    Args:
        peak_bytes: the peak memory of a check of the input program.
        free_bytes: the memory available for checks.

    >>> jobs_that_fit(3 << 30, 16 << 30)
    5
    """
    return max(1, free_bytes // max(1, peak_bytes))
