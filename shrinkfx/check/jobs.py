"""How many candidates are asked about at once."""

from __future__ import annotations

from shrinkfx.processes import usable_cores

MOST = 4
"""What is asked ahead by more of them is less and less likely to be wanted."""


def usual_jobs(cores: int | None = None) -> int:
    """Use half the cores: compilers, and what they compile, have threads of their own.

    Args:
        cores: None for those that this process may use.

    >>> [usual_jobs(cores) for cores in (1, 2, 4, 16)]
    [1, 1, 2, 4]
    """
    half = (usable_cores() if cores is None else cores) // 2
    return max(1, min(MOST, half))


def jobs_that_fit(peak_bytes: int, free_bytes: int) -> int:
    """Count the checks for which there is memory at once; one, in any case.

    Args:
        peak_bytes: what a check of the whole program has taken.
        free_bytes: what there is for checks.

    >>> jobs_that_fit(3 << 30, 16 << 30)
    5
    """
    return max(1, free_bytes // max(1, peak_bytes))
