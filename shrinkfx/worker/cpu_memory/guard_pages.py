"""Build and load ``guard_pages.c``, which places tensors next to inaccessible memory.

Run as a program, this module becomes a worker with that library preloaded. The library
removes itself from the environment, so compilers run without it.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from shrinkfx.protocol.choices import Guard
from shrinkfx.worker import native

LIBRARY = "SHRINKFX_GUARD_LIBRARY"
"""The variable with the library's path in the processes that have loaded it."""

_SIDE = "SHRINKFX_GUARD_PAGES"
_WHY_NOT = "SHRINKFX_NO_GUARD_PAGES"
_SOURCE = Path(__file__).with_suffix(".c")
_FAULTS = _SOURCE.with_name("guard_faults.h")
_FLAGS = ("-x", "c", "-O2", "-fPIC", "-shared", "-pthread")
_PAGE_BYTES = 4096


def build() -> Path:
    """Compile the library, once for all runs of a user.

    Returns:
        The path of the library.

    Raises:
        CannotBuild: the library cannot be compiled or stored.
    """
    return native.build(_SOURCE, _FLAGS, _FAULTS)


def guarded_environment(
    environment: Mapping[str, str], library: str, side: str = Guard.OFF
) -> dict[str, str]:
    """Return the environment in which a new program starts with guard pages."""
    others = environment.get("LD_PRELOAD", "")
    loaded = ":".join(filter(None, [library, others]))
    return {**environment, "LD_PRELOAD": loaded, LIBRARY: library, _SIDE: side}


def set_guard_side(side: str) -> None:
    """Set the side of new tensors with a guard page; needs the library loaded."""
    if LIBRARY not in os.environ and side not in (Guard.AFTER, Guard.BEFORE):
        return
    if not ctypes.CDLL(None).shrinkfx_guard(list(Guard).index(Guard(side))):
        raise RuntimeError("no address space is left for guard pages")


def report_code_address() -> None:
    """Let the report of a fault contain the address of the faulting code."""
    if LIBRARY in os.environ:
        ctypes.CDLL(None).shrinkfx_tell_code()


def is_requested() -> bool:
    """Return whether this process was started with a request for guard pages."""
    return LIBRARY in os.environ or _WHY_NOT in os.environ


def why_unavailable() -> str:
    """Return why guard pages do not work on a test tensor; '' if they do.

    Returns:
        '' also if this process was not asked for guard pages.
    """
    if LIBRARY not in os.environ:
        return os.environ.get(_WHY_NOT, "")
    import torch

    try:
        set_guard_side(Guard.AFTER)
        tensor = torch.empty(25, dtype=torch.uint8)
        set_guard_side(Guard.OFF)
    except (AttributeError, RuntimeError) as error:
        return str(error)
    fits = (tensor.data_ptr() + 25) % _PAGE_BYTES == 0
    return (
        "" if fits else "guard pages do not support how this PyTorch allocates tensors"
    )


def main() -> None:
    """Become a worker with guard pages, or with the reason why there are none."""
    environment = dict(os.environ)
    try:
        environment = guarded_environment(environment, str(build()))
    except native.CannotBuild as error:
        environment[_WHY_NOT] = str(error)
    worker = [sys.executable, "-P", "-m", "shrinkfx.worker", *sys.argv[1:]]
    os.execve(sys.executable, worker, environment)


if __name__ == "__main__":
    main()
