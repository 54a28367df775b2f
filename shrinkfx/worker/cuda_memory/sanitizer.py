"""Run a Python under compute-sanitizer, for each illegal access of a GPU."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

_NAME = "compute-sanitizer"
_OPTIONS = (
    # Compilers and what else it starts use no GPU.
    "--target-processes=application-only",
    "--print-limit=20",
    "--show-backtrace=no",
    # What is asked of the driver in vain, as whether a feature is there, is no error.
    "--report-api-errors=no",
)
_OF_MEMCHECK = ("--padding=4096", "--leak-check=no")
"""What lies next to an allocation is no memory of the program's."""


class CannotSanitize(Exception):
    """There is no compute-sanitizer here; says what to install."""


def command(tool: str) -> list[str]:
    """Give what is to precede a command, to run it under a tool.

    Raises:
        CannotSanitize: it is not installed.
    """
    found = shutil.which(_NAME, path=_path())
    if found is None:
        raise CannotSanitize(
            f"{_NAME} is not on the PATH nor in $CUDA_HOME/bin: install CUDA's "
            "toolkit, or pip install nvidia-cuda-sanitizer-api"
        )
    more = _OF_MEMCHECK if tool == "memcheck" else ()
    return [found, f"--tool={tool}", *_OPTIONS, *more]


def _path() -> str:
    """List where it may lie: packages of NVIDIA's have a folder of their own."""
    home = os.environ.get("CUDA_HOME") or "/usr/local/cuda"
    packages = (Path(place) / "nvidia" for place in sys.path if place)
    theirs = (path.parent for each in packages for path in each.glob(f"*/bin/{_NAME}"))
    places = [os.environ.get("PATH", ""), f"{home}/bin", *map(str, theirs)]
    return os.pathsep.join(places)
