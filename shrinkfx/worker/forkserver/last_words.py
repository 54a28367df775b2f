"""Have each thread say what it threw before the process ends: ``last_words.cpp``."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

from shrinkfx.worker import native

_SOURCE = Path(__file__).with_suffix(".cpp")
_FLAGS = ("-x", "c++", "-std=c++17", "-O1", "-fPIC", "-shared")

ONE_THREAD = {"OMP_THREAD_LIMIT": "1"}
"""What has a new process run each parallel region in one thread."""


def build() -> Path:
    """Compile the library, once for all runs of a user.

    Raises:
        CannotBuild: it cannot be compiled or kept.
    """
    return native.build(_SOURCE, _FLAGS)


def keep() -> None:
    """Keep what threads of this process throw, and of its forks.

    Where that cannot be, it is said in the log. What ends without words then is run
    once more in one thread (``check/second_look.py``).
    """
    try:
        ctypes.CDLL(str(build())).shrinkfx_keep_words()
    except (native.CannotBuild, OSError, AttributeError) as error:
        print(f"exceptions of other threads may be lost: {error}", file=sys.stderr)


def one_thread() -> None:
    """Have each parallel region of this process run in one thread.

    The compiled code is the same: Inductor goes by the number of threads that there
    may be. ``torch.set_num_threads`` would change that, and not what a region asks for.
    """
    openmp = ctypes.CDLL(None)
    if hasattr(openmp, "omp_set_max_active_levels"):
        openmp.omp_set_max_active_levels(0)
