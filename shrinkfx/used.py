"""CPU-seconds of this process and of all that it has started."""

from __future__ import annotations

import os
from resource import RUSAGE_CHILDREN, RUSAGE_SELF, getrusage

from shrinkfx.processes import descendants, sample


class Process:
    """Whether this process is there for a run alone, as the command's is.

    Attributes:
        unclaimed: what it has done so far, imports above all, is the next run's.
    """

    unclaimed = False


def tree_cpu_s() -> float:
    """Count those of this process, of children that it waited for, and of the living.

    The living are read to the hundredth of a second. What nobody waits for is lost.
    """
    ended = (getrusage(who) for who in (RUSAGE_SELF, RUSAGE_CHILDREN))
    seconds = sum(usage.ru_utime + usage.ru_stime for usage in ended)
    return seconds + sample(descendants(os.getpid())).cpu_seconds


def used_before() -> float:
    """Say how many of them are none of a run that begins now."""
    if Process.unclaimed:
        Process.unclaimed = False
        return 0.0
    return tree_cpu_s()
