"""The variables that a process starts with: the worker's, and those of a stranger."""

from __future__ import annotations

import functools
import os
import site
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import shrinkfx
from shrinkfx.protocol.requests import MARK

TUNING = ("TORCH", "PYTORCH", "AOT", "TRITON", "OMP_", "MKL_", "GOMP_", "KMP_")
"""Prefixes of the variables by which a shell changes what PyTorch does."""

_PLACES = ("PYTHONPATH", "PYTHONHOME", "PYTHONUSERBASE")

_FIND = "import importlib.util as u, sys; sys.exit(u.find_spec('torch') is None)"


def tuning(environment: Mapping[str, str]) -> dict[str, str]:
    """Pick the variables that may matter to a failure; folders never do."""
    return {
        name: value
        for name, value in environment.items()
        if name.startswith(TUNING) and "/" not in value
    }


def of_worker(extra: Mapping[str, str] | None, mark: str) -> dict[str, str]:
    """Set what must be there when the worker's process starts.

    Without PYTHONUNBUFFERED a crash loses what was printed; the compile pool would
    leave processes behind; NVML finds a GPU without creating a context.
    """
    root = str(Path(shrinkfx.__file__).resolve().parents[1])
    given = dict(os.environ)
    if extra is None:
        given = bare(dict(given.items() - tuning(given).items()))
    fixed = {
        "PYTHONPATH": os.pathsep.join(filter(None, [root, given.get("PYTHONPATH")])),
        "PYTHONUNBUFFERED": "1",
        "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        # torch imports NumPy, whose threads would not survive a fork.
        "OPENBLAS_NUM_THREADS": "1",
        MARK: mark,
    }
    together = {**given, **fixed, **(extra or {})}
    unset = {name for name, value in (extra or {}).items() if not value}
    # It moves the values that an explanation reads (torch 2.15).
    unset.add("AOTI_TORCH_SAVE_DIR")
    return {name: value for name, value in together.items() if name not in unset}


def bare(makers: Mapping[str, str]) -> dict[str, str]:
    """Leave out what tells Python where its maker's modules are, and how to run.

    Where PyTorch is found only there, those places stay: nothing could run else.
    """
    others = {k: v for k, v in makers.items() if not k.startswith("PYTHON")}
    if has_torch():
        return {**others, "PYTHONNOUSERSITE": "1"}
    # Scripts have another home, and the user's packages would be looked for there.
    places = {"PYTHONUSERBASE": site.getuserbase(), **makers}
    return {**others, **{name: places[name] for name in _PLACES if name in places}}


@functools.cache
def has_torch() -> bool:
    """Tell whether the interpreter finds PyTorch without its user's help."""
    command = [sys.executable, "-I", "-c", _FIND]
    return not subprocess.run(command, capture_output=True, check=False).returncode
