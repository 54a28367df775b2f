"""How many candidates are asked about at once, where nobody says how many."""

from __future__ import annotations

from shrinkfx.processes import usable_cores

MOST = 4
"""What more would ask ahead is less and less likely to be wanted."""


def usual_jobs(peak_bytes: int, free_bytes: int, cores: int | None = None) -> int:
    """Use half the cores, as far as there is memory for so many checks.

    Half of them, since compilers and what they compile have threads of their own.

    Args:
        peak_bytes: what a check of the whole program has taken.
        free_bytes: what there is for checks.
        cores: None for those that this process may use.

    >>> [usual_jobs(1 << 30, 64 << 30, cores) for cores in (1, 2, 4, 16)]
    [1, 1, 2, 4]
    >>> usual_jobs(20 << 30, 64 << 30, 16)
    3
    """
    half = (usable_cores() if cores is None else cores) // 2
    fitting = free_bytes // max(1, peak_bytes)
    return max(1, min(MOST, half, fitting))
