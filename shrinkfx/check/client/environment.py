"""The environment variables of workers, and of scripts as another user runs them."""

from __future__ import annotations

import functools
import os
import site
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import shrinkfx
from shrinkfx.program.pytorch_names import TUNING
from shrinkfx.protocol.requests import MARK

_PLACES = ("PYTHONPATH", "PYTHONHOME", "PYTHONUSERBASE")

_FIND = "import importlib.util as u, sys; sys.exit(u.find_spec('torch') is None)"


def select_tuning_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Select the variables that may affect a failure; those with paths never do."""
    return {
        name: value
        for name, value in environment.items()
        if name.startswith(TUNING) and "/" not in value
    }


def make_worker_environment(
    extra: Mapping[str, str] | None, mark: str
) -> dict[str, str]:
    """Return the environment of a worker process.

    Without PYTHONUNBUFFERED a crash loses printed text; the compile pool would leave
    processes behind; NVML finds a GPU without creating a context.

    Args:
        extra: variables to add; an empty one is removed. None for another user's
            environment.
        mark: the mark by which the process can be found.
    """
    root = str(Path(shrinkfx.__file__).resolve().parents[1])
    base = dict(os.environ)
    if extra is None:
        base = remove_python_variables(
            dict(base.items() - select_tuning_variables(base).items())
        )
    fixed = {
        "PYTHONPATH": os.pathsep.join(filter(None, [root, base.get("PYTHONPATH")])),
        "PYTHONUNBUFFERED": "1",
        "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        # torch imports NumPy, whose threads would not survive a fork.
        "OPENBLAS_NUM_THREADS": "1",
        MARK: mark,
    }
    merged = {**base, **fixed, **(extra or {})}
    unset = {name for name, value in (extra or {}).items() if not value}
    # This one would move the values that an explanation reads (torch 2.15).
    unset.add("AOTI_TORCH_SAVE_DIR")
    return {name: value for name, value in merged.items() if name not in unset}


def remove_python_variables(makers: Mapping[str, str]) -> dict[str, str]:
    """Remove the variables by which a user configures Python.

    They tell Python where the user's modules are, and how to run. If PyTorch is found
    only there, those places stay, because nothing could run otherwise.
    """
    others = {k: v for k, v in makers.items() if not k.startswith("PYTHON")}
    if has_torch():
        return {**others, "PYTHONNOUSERSITE": "1"}
    # Scripts have another HOME, so Python would search the user's packages there.
    places = {"PYTHONUSERBASE": site.getuserbase(), **makers}
    return {**others, **{name: places[name] for name in _PLACES if name in places}}


@functools.cache
def has_torch() -> bool:
    """Tell whether the interpreter finds PyTorch without the user's settings."""
    command = [sys.executable, "-I", "-c", _FIND]
    return not subprocess.run(command, capture_output=True, check=False).returncode
