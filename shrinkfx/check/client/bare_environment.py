"""What a stranger's shell lacks: the places where Python finds its maker's modules."""

from __future__ import annotations

import functools
import site
import subprocess
import sys
from collections.abc import Mapping

_PLACES = ("PYTHONPATH", "PYTHONHOME", "PYTHONUSERBASE")

_FIND = "import importlib.util as u, sys; sys.exit(u.find_spec('torch') is None)"


def environment(makers: Mapping[str, str]) -> dict[str, str]:
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
