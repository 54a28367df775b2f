"""Broken environments for the processes that tests start."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

_STUB = "get_num_threads = lambda: 1\nset_num_threads = lambda n: None\n"
RAISES = "raise OSError('libtorch_cpu.so: cannot open shared object file')\n"
OLD = f"__version__ = '2.5.0'\n{_STUB}"
BARE = f"__version__ = '2.99.0.dev1'\n{_STUB}"
"""Newer than all tested versions, and without most names of PyTorch."""
DIES = "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n"
HANGS = "import time\nopen('hangs', 'w').close()\ntime.sleep(600)\n"


def with_torch(folder: Path, text: str) -> dict[str, str]:
    """Write a package named torch; return the variables that select it."""
    package = folder / "hides" / "torch"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(text)
    return {"PYTHONPATH": os.pathsep.join([str(package.parent), str(ROOT)])}


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "shrinkfx", *words]


def shrinkfx(
    folder: Path, variables: dict[str, str], *words: str
) -> subprocess.CompletedProcess[str]:
    """Run the command in an environment with these variables."""
    return subprocess.run(
        command(*words),
        cwd=folder,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
