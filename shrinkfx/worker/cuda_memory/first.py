"""What must be done first in a process whose tensors are to lie between red zones.

Run as a program, ``first.py LIBRARY SIDE SCRIPT``, it does that and becomes the script.
It needs nothing of shrinkfx, which a script of others may not have.
"""

from __future__ import annotations

import atexit
import ctypes
import runpy
import sys

PAGES = "red zones: tensors lie between inaccessible pages, and zones up to these"
ZONES = "red zones: tensors lie between zones only: this driver cannot map pages"
"""What is written into the log; ``failure/readers/zones.py`` reads it."""


def install(library: str, side: int, *, loud: bool = False) -> ctypes.CDLL:
    """Make a library PyTorch's allocator of CUDA memory, before CUDA is used.

    Args:
        side: of tensors, at which pages are: 1 after, 2 before.
        loud: end the process where a zone is spoiled, and look at all when it ends.
    """
    import torch

    # So that what is loaded later finds launches by that name (launches.h).
    zones = ctypes.CDLL(library, mode=ctypes.RTLD_GLOBAL)
    zones.shrinkfx_zones_set(side, loud)
    names = "shrinkfx_zones_malloc", "shrinkfx_zones_free"
    allocator = torch.cuda.memory.CUDAPluggableAllocator(library, *names)
    torch.cuda.memory.change_current_allocator(allocator)
    if loud:
        zones.shrinkfx_zones_watch(1)
        atexit.register(zones.shrinkfx_zones_look)
    return zones


def tell(zones: ctypes.CDLL) -> None:
    """Write down what tensors lie against, once one has been made."""
    if (pages := zones.shrinkfx_zones_have_pages()) >= 0:
        print(PAGES if pages else ZONES, flush=True)


def main() -> None:
    _, library, side, script = sys.argv
    atexit.register(tell, install(library, int(side), loud=True))
    sys.argv = [script]
    sys.path[0] = script.rpartition("/")[0] or "."
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main()
