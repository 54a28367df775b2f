"""Run at the start of each Python of a script that is captured, before the script.

What would have been run in its place is run after it, and finds ``sys.path`` as it
would have been. Nothing else is imported until the script imports torch.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from types import ModuleType

NAME = "_shrinkfx_watching"
"""What the package that watches is called in the script's interpreter."""


def _watch() -> None:
    """Have torch watched from its import on."""
    folder = os.environ.get("SHRINKFX_CAPTURE")
    if not folder or not os.path.isdir(folder):
        return
    package = ModuleType(NAME)
    package.__path__ = [os.path.join(os.path.dirname(_HERE), "watching")]
    sys.modules[NAME] = package
    import_module(f"{NAME}.after_import").BeforeTorch(folder).install()


def _run_the_next() -> None:
    """Import what Python would have imported as ``sitecustomize`` without us."""
    sys.path[:] = [place for place in sys.path if os.path.abspath(place) != _HERE]
    ours = sys.modules.pop("sitecustomize")
    try:
        import_module("sitecustomize")
    except ModuleNotFoundError as error:
        if error.name != "sitecustomize":
            raise
        sys.modules["sitecustomize"] = ours  # whoever imports it looks for it there


_HERE = os.path.dirname(os.path.abspath(__file__))

if _HERE in os.environ.get("PYTHONPATH", "").split(os.pathsep):  # we were sent
    try:
        _watch()
    except Exception as error:  # noqa: BLE001 - the script shall run, whatever we miss
        print(f"shrinkfx: cannot capture: {error!r}", file=sys.stderr)
    _run_the_next()
