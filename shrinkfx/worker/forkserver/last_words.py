"""Log the exceptions that threads throw as the process ends: ``last_words.cpp``."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

from shrinkfx.worker import native

_SOURCE = Path(__file__).with_suffix(".cpp")
_FLAGS = ("-x", "c++", "-std=c++17", "-O1", "-fPIC", "-shared")

ONE_THREAD = {"OMP_THREAD_LIMIT": "1"}
"""Environment that makes a new process run each parallel region in one thread."""


def build() -> Path:
    """Compile the library, once for all runs of a user.

    Returns:
        The path of the library.

    Raises:
        CannotBuild: the library cannot be compiled or stored.
    """
    return native.build(_SOURCE, _FLAGS)


def log_thread_exceptions() -> None:
    """Log exceptions that threads of this process, and of its forks, throw.

    If the library cannot be built, a warning goes to the log. A process that ends
    without a message is then run again in one thread (``check/oracle.py``).
    """
    try:
        ctypes.CDLL(str(build())).shrinkfx_keep_words()
    except (native.CannotBuild, OSError, AttributeError) as error:
        print(f"exceptions of other threads may be lost: {error}", file=sys.stderr)


def limit_to_one_thread() -> None:
    """Run each parallel region of this process in one thread.

    The compiled code does not change, because Inductor reads the maximum number of
    threads. ``torch.set_num_threads`` would change that number, but not the number that
    a parallel region requests.
    """
    openmp = ctypes.CDLL(None)
    if hasattr(openmp, "omp_set_max_active_levels"):
        openmp.omp_set_max_active_levels(0)
