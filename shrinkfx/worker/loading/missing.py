"""What to do where something cannot be imported: which Python, and which file it is.

The worker's Python need not be the one that the user types: that of ``pipx install``
has packages of its own. And Python looks into the current folder first, where a file
may go by the name of a module that PyTorch imports.
"""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path


def advice_on(error: BaseException) -> str:
    """Say what may be done about an import that has failed; '' of any other error."""
    if not isinstance(error, ImportError):
        return ""
    if (file := _in_the_way(error)) is not None:
        return (
            f"{file} is imported in the place of another module of that name: rename "
            "it, or begin the run in another folder"
        )
    if isinstance(error, ModuleNotFoundError) and error.name:
        return (
            f"{sys.executable} has no module {error.name}: install it there, run "
            "shrinkfx in the environment in which your script runs (python -m "
            "shrinkfx), or have PYTHONPATH name its folder"
        )
    return f"what {sys.executable} imports does not fit together: see its traceback"


def _in_the_way(error: ImportError) -> Path | None:
    """Find a file of the current folder by which a module of Python's own is hidden.

    Also one of the standard library that PyTorch would have imported, and of torch.
    """
    files = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    here = Path(os.getcwd())
    for name in filter(None, (error.path, *reversed(files))):
        file = Path(name)
        module = file.parent if file.name == "__init__.py" else file
        hides = module.stem in sys.stdlib_module_names or module.stem in _OURS
        if module.parent == here and hides:
            return file
    return None


_OURS = {"torch", "numpy", "triton", "sympy", "networkx", "shrinkfx", "jinja2"}
"""Packages that a worker imports, besides Python's own."""
