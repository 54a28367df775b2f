"""Have a script run as it would for a stranger, in this process or in a new one.

A stranger has the same interpreter with the same packages, and nothing of this server,
of the home of whoever runs it, or of the folder where that was.
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

OWN_VARIABLES = (
    "PYTORCH_NVML_BASED_CUDA_CHECK",
    "TORCHINDUCTOR_COMPILE_THREADS",
    "OPENBLAS_NUM_THREADS",
    guard_pages.LIBRARY,
    red_zones.LIBRARY,
)
"""What is set for servers only."""

_TELL = "import json, sys; print(json.dumps(sys.path))"


def environment(folder: Path) -> dict[str, str]:
    """Take the server's own variables out of this process's, and give it a new home.

    What lies in a home is configuration, and caches. Inductor's lie in ``$TMPDIR``.

    Args:
        folder: where to make that.
    """
    home = folder / "home"
    home.mkdir()
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in OWN_VARIABLES and not _is_of_home(name)
    }
    # The server's path is the script's with one folder before it.
    path = kept.pop("PYTHONPATH", "").partition(os.pathsep)[2]
    return {**kept, **({"PYTHONPATH": path} if path else {}), "HOME": str(home)}


def _is_of_home(name: str) -> bool:
    return name.startswith("XDG_") and name.endswith("_HOME")


def become(environment: Mapping[str, str], folder: str) -> None:
    """Let what is imported from now on be found as in a new interpreter.

    Args:
        folder: where the script lies.
    """
    take_places(environment, folder)
    for name in [*sys.modules]:
        if name.partition(".")[0] == "shrinkfx":
            del sys.modules[name]  # whoever has imported it keeps it


def take_places(environment: Mapping[str, str], folder: str) -> None:
    """Do so for all but what is imported already."""
    os.environ.clear()
    os.environ.update(environment)
    done = subprocess.run(
        [sys.executable, "-c", _TELL],
        stdout=subprocess.PIPE,
        check=True,
        cwd=folder,
        text=True,
    )
    _, *found = json.loads(done.stdout.splitlines()[-1])
    sys.path[:] = [folder, *found]
