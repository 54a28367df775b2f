"""Give advice if a module cannot be imported: which Python lacks it, or which file.

The worker's Python may be another than the user's: ``pipx install`` creates one with
its own packages. And Python looks into the current folder first, where a file may have
the name of a module that PyTorch imports.
"""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path

from shrinkfx.errors import SEE_DOCTOR, LoadError


def advice_on(error: BaseException) -> str:
    """Return advice on an import that failed; '' for any other exception."""
    if not isinstance(error, ImportError):
        return ""
    if (file := _find_shadowing_file(error)) is not None:
        return (
            f"{file} shadows another module of that name: rename it, or start the run "
            "in another folder"
        )
    if isinstance(error, ModuleNotFoundError) and error.name:
        return (
            f"{sys.executable} has no module {error.name}: install it there, run "
            "shrinkfx in the environment in which your script runs (python -m "
            "shrinkfx), or have PYTHONPATH name its folder"
        )
    return f"packages that {sys.executable} imports do not match: see the traceback"


def summarize_error(error: BaseException) -> str:
    """Describe an exception in one line."""
    text = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {text:.300}"


def require_triton() -> None:
    """Check that Triton and ptxas are present, because CUDA programs need both.

    Raises:
        LoadError: one of them is missing.
    """
    try:
        triton_version()
    except Exception as error:
        reason = (
            f"CUDA programs need it, and importing it fails: {summarize_error(error)}"
        )
        advice = f"{sys.executable} -m pip install triton\n{SEE_DOCTOR}"
        raise LoadError("Triton", reason, advice) from error
    try:
        ptxas_version()
    except RuntimeError as error:
        advice = f"{PTXAS_FROM}\n{SEE_DOCTOR}"
        raise LoadError("ptxas", f"CUDA programs need it: {error}", advice) from error


PTXAS_FROM = (
    "install Triton's own wheel, which contains ptxas (pip install triton), or set "
    "TRITON_PTXAS_PATH to the ptxas of a CUDA toolkit"
)


def triton_version() -> str:
    """Import Triton and return its version.

    The import of a broken Triton may raise any exception.
    """
    import triton

    return str(triton.__version__)


def ptxas_version() -> str:
    """Return the version and the path of the ptxas that Triton uses.

    Raises:
        RuntimeError: Triton finds no ptxas.
    """
    try:
        from triton import knobs

        found = knobs.nvidia.ptxas
        return f"{found.version}, {found.path}"
    except (ImportError, AttributeError):
        return "this Triton does not report its ptxas"


def _find_shadowing_file(error: ImportError) -> Path | None:
    """Return a file of the current folder that shadows a module, or None.

    The module may be one of the standard library, torch, or another package that a
    worker imports.
    """
    files = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    cwd = Path(os.getcwd())
    for name in filter(None, (error.path, *reversed(files))):
        file = Path(name)
        module = file.parent if file.name == "__init__.py" else file
        shadows = module.stem in sys.stdlib_module_names or module.stem in _PACKAGES
        if module.parent == cwd and shadows:
            return file
    return None


_PACKAGES = {"torch", "numpy", "triton", "sympy", "networkx", "shrinkfx", "jinja2"}
"""Packages that a worker imports, besides the standard library."""
