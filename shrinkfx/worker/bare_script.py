"""Run a script as a user without shrinkfx would, in this process or in a new one.

Such a user has the same interpreter and packages, but not this server's environment,
the home folder of the user who runs shrinkfx, or the folder that the run started in.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from shrinkfx.worker.cpu_memory import guard_pages
from shrinkfx.worker.cuda_memory import red_zones

SERVER_VARIABLES = (
    "PYTORCH_NVML_BASED_CUDA_CHECK",
    "TORCHINDUCTOR_COMPILE_THREADS",
    "OPENBLAS_NUM_THREADS",
    guard_pages.LIBRARY,
    red_zones.LIBRARY,
)
"""Environment variables that are set for servers only."""

_PRINT_PATH = "import json, sys; print(json.dumps(sys.path))"


def environment(folder: Path) -> dict[str, str]:
    """Return the environment without the server's variables, with a new empty home.

    A home folder holds configuration and caches. Inductor's caches are in ``$TMPDIR``.

    Args:
        folder: the folder in which to create the home folder.
    """
    home = folder / "home"
    home.mkdir()
    variables = {
        name: value
        for name, value in os.environ.items()
        if name not in SERVER_VARIABLES and not _is_of_home(name)
    }
    # The server's path is the script's with one folder before it.
    path = variables.pop("PYTHONPATH", "").partition(os.pathsep)[2]
    return {**variables, **({"PYTHONPATH": path} if path else {}), "HOME": str(home)}


def _is_of_home(name: str) -> bool:
    return name.startswith("XDG_") and name.endswith("_HOME")


def act_as_new_interpreter(environment: Mapping[str, str], folder: str) -> None:
    """Resolve all later imports, also of ``shrinkfx``, as a new interpreter would.

    Args:
        folder: the folder of the script.
    """
    set_environment_and_path(environment, folder)
    for name in [*sys.modules]:
        if name.partition(".")[0] == "shrinkfx":
            del sys.modules[name]  # modules that imported it keep their reference


def set_environment_and_path(environment: Mapping[str, str], folder: str) -> None:
    """Set the environment and ``sys.path``, but keep the imported modules."""
    os.environ.clear()
    os.environ.update(environment)
    result = subprocess.run(
        [sys.executable, "-c", _PRINT_PATH],
        stdout=subprocess.PIPE,
        check=True,
        cwd=folder,
        text=True,
    )
    _, *entries = json.loads(result.stdout.splitlines()[-1])
    sys.path[:] = [folder, *entries]
