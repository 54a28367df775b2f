"""Install the allocator with red zones first in a process, before CUDA is used.

Run as a program, ``first.py LIBRARY SIDE SCRIPT``, it does that and then runs the
script. It imports nothing of shrinkfx, because the user of a script may not have
shrinkfx.
"""

from __future__ import annotations

import atexit
import ctypes
import runpy
import sys

PAGES = "red zones: tensors lie between inaccessible pages, and zones up to these"
ZONES = "red zones: tensors lie between zones only: this driver cannot map pages"
"""Lines for the log, which ``failure/readers/memory.py`` reads."""


def install(library: str, side: int, *, loud: bool = False) -> ctypes.CDLL:
    """Make a library PyTorch's allocator of CUDA memory, before CUDA is used.

    Args:
        library: the path of the compiled ``red_zones.cu``.
        side: the side of tensors with inaccessible pages: 1 after, 2 before.
        loud: end the process if a zone is overwritten, and check all zones at exit.
    """
    import torch

    # RTLD_GLOBAL: later libraries find our cuLaunchKernel first (launches.h).
    zones = ctypes.CDLL(library, mode=ctypes.RTLD_GLOBAL)
    zones.shrinkfx_zones_set(side, loud)
    names = "shrinkfx_zones_malloc", "shrinkfx_zones_free"
    allocator = torch.cuda.memory.CUDAPluggableAllocator(library, *names)
    torch.cuda.memory.change_current_allocator(allocator)
    if loud:
        zones.shrinkfx_zones_watch(1)
        atexit.register(zones.shrinkfx_zones_look)
    return zones


def log_protection(zones: ctypes.CDLL) -> None:
    """Log what protects tensors, pages or zones only, once a tensor was allocated."""
    if (pages := zones.shrinkfx_zones_have_pages()) >= 0:
        print(PAGES if pages else ZONES, flush=True)


def main() -> None:
    _, library, side, script = sys.argv
    atexit.register(log_protection, install(library, int(side), loud=True))
    sys.argv = [script]
    sys.path[0] = script.rpartition("/")[0] or "."
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main()
