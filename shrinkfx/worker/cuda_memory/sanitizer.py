"""Run a Python process under compute-sanitizer to report each illegal GPU access."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

_NAME = "compute-sanitizer"
_OPTIONS = (
    # Compilers and other subprocesses use no GPU.
    "--target-processes=application-only",
    "--print-limit=20",
    "--show-backtrace=no",
    # A failed query of the driver, such as for a missing feature, is no error.
    "--report-api-errors=no",
)
_MEMCHECK_OPTIONS = ("--padding=4096", "--leak-check=no")
"""Padding makes accesses next to an allocation illegal."""


class CannotSanitize(Exception):
    """compute-sanitizer is not available; the message says what to install."""


def command(tool: str) -> list[str]:
    """Return the command prefix that runs another command under a tool.

    Raises:
        CannotSanitize: compute-sanitizer is not installed.
    """
    executable = shutil.which(_NAME, path=_path())
    if executable is None:
        raise CannotSanitize(
            f"{_NAME} is not on the PATH nor in $CUDA_HOME/bin: install CUDA's "
            "toolkit, or pip install nvidia-cuda-sanitizer-api"
        )
    more = _MEMCHECK_OPTIONS if tool == "memcheck" else ()
    return [executable, f"--tool={tool}", *_OPTIONS, *more]


def _path() -> str:
    """Return the search path, with the bin folders of NVIDIA's Python packages."""
    home = os.environ.get("CUDA_HOME") or "/usr/local/cuda"
    packages = (Path(place) / "nvidia" for place in sys.path if place)
    bundled = (path.parent for each in packages for path in each.glob(f"*/bin/{_NAME}"))
    places = [os.environ.get("PATH", ""), f"{home}/bin", *map(str, bundled)]
    return os.pathsep.join(places)
