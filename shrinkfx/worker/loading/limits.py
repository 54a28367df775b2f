"""Limits of time and memory for reading a file, which may be damaged or endless."""

from __future__ import annotations

import contextlib
import math
import resource
import signal
import time
from collections.abc import Iterator


@contextlib.contextmanager
def limit_cpu_time(cpu_seconds: float) -> Iterator[None]:
    """End this process by SIGXCPU if the block uses more CPU time.

    A signal handler could not do it, because Python runs none during a single C call.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_CPU)
    core_soft, core_hard = resource.getrlimit(resource.RLIMIT_CORE)
    end = math.ceil(time.process_time() + cpu_seconds)
    finite = [limit for limit in (soft, hard, end) if limit != resource.RLIM_INFINITY]
    signal.signal(signal.SIGXCPU, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, core_hard))
    resource.setrlimit(resource.RLIMIT_CPU, (min(finite), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_CPU, (soft, hard))
        resource.setrlimit(resource.RLIMIT_CORE, (core_soft, core_hard))


@contextlib.contextmanager
def limit_memory(most: int) -> Iterator[None]:
    """Let allocations fail in the block if they add more than that many bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    limits = (soft, hard, _data_bytes() + most)
    finite = [limit for limit in limits if limit != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_DATA, (min(finite), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def _data_bytes() -> int:
    """Return the data size of this process, in bytes, which the limit is added to."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[5]) * resource.getpagesize()
