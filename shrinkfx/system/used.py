"""CPU-seconds of this process and of its descendants."""

from __future__ import annotations

import os
from resource import RUSAGE_CHILDREN, RUSAGE_SELF, getrusage

from shrinkfx.system.processes import list_descendants, sample_processes


class ProcessState:
    """State of this process that decides which CPU time counts for a run.

    Attributes:
        unclaimed: whether the CPU time so far, mostly of imports, counts for the next
            run. The command line sets this, because its process exists only for a run.
    """

    unclaimed = False


def measure_tree_cpu_s() -> float:
    """Return the CPU-seconds of this process, of ended children and of descendants.

    An ended child counts only if its parent has waited for it. The values of living
    descendants have a resolution of a hundredth of a second.
    """
    usages = (getrusage(scope) for scope in (RUSAGE_SELF, RUSAGE_CHILDREN))
    seconds = sum(usage.ru_utime + usage.ru_stime for usage in usages)
    return seconds + sample_processes(list_descendants(os.getpid())).cpu_seconds


def measure_earlier_cpu_s() -> float:
    """Return the CPU-seconds so far that do not count for a run that begins now."""
    if ProcessState.unclaimed:
        ProcessState.unclaimed = False
        return 0.0
    return measure_tree_cpu_s()
