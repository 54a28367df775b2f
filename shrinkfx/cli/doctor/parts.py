"""The parts of the environment, with the cost and the remedy of each."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from shrinkfx.errors import REPORT_BUG
from shrinkfx.protocol.answers import Row, Status
from shrinkfx.versions import RANGE


@dataclass(frozen=True)
class Part:
    """A part of the environment.

    Attributes:
        cost: what the user loses if the part does not work.
        remedy: what to do if the part does not work.
    """

    name: str
    cost: str
    remedy: str

    def works(self, detail: str) -> Row:
        return Row(self.name, Status.WORKS, detail)

    def missing(self, detail: str) -> Row:
        return Row(self.name, Status.MISSING, detail, self.cost, self.remedy)

    def broken(self, detail: str) -> Row:
        return Row(self.name, Status.BROKEN, detail, self.cost, self.remedy)

    def not_tried(self, other: str) -> Row:
        """Make the row of a part that needs another part, which does not work."""
        return Row(self.name, Status.NOT_TRIED, f"needs {other}: see that row")


_INSTALL_TORCH = f"Install torch {RANGE} for {sys.executable}."
_REPORT = f"If every row above works, {REPORT_BUG}."

TORCH = Part("PyTorch", "Nothing works without it.", _INSTALL_TORCH)
COMPILER = Part(
    "C++ compiler",
    "AOTInductor cannot compile without it.",
    "Install g++, or set CXX to the path of a compiler.",
)
WORKER = Part("worker", "No program can be read.", f"{_INSTALL_TORCH} {_REPORT}")
AOTI = Part("AOTInductor", "No CPU program can be reduced.", _REPORT)
FAST_BUILD = Part(
    "fast build",
    "Each check uses a normal AOTInductor build, which takes longer.",
    _INSTALL_TORCH,
)
VERIFICATION = Part(
    "verification", "A repro cannot be verified, so a run ends with code 5.", _REPORT
)
GUARD_PAGES = Part(
    "guard pages",
    "With --until ima, an access just outside a tensor may go unnoticed on the CPU.",
    "Run shrinkfx on Linux with a working g++.",
)
INTERPRETER = Part(
    "CUDA without a GPU",
    "CUDA programs can only be reduced on a GPU.",
    f"Install torch {RANGE} and the Triton version that matches it.",
)
ON_GPU = Part(
    "CUDA on a GPU",
    "CUDA programs can only be checked on the interpreter: --backend interpreter.",
    "Install a driver and a torch build that support the GPU.",
)
PAGE = Part(
    "report.html",
    "A run writes no report.html.",
    f"Run {sys.executable} -m pip install jinja2.",
)
_NAMES = ("Triton", "ptxas", "GPU", "compute-sanitizer", "private names of PyTorch")
INSPECTED = tuple(Part(name, "", "") for name in _NAMES)
"""Parts that only the worker can test; it writes their costs and remedies itself."""
