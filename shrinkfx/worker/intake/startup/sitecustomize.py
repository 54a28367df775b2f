"""Set up the capture in each Python process of a captured script, before the script.

Afterwards it runs the ``sitecustomize`` that Python would have run without shrinkfx,
with the ``sys.path`` that Python would have had. Nothing else is imported until the
script imports torch.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from types import ModuleType

NAME = "_shrinkfx_watching"
"""The name of the package ``shrinkfx`` in the script's interpreter.

Another name leaves ``import shrinkfx`` of the script as it is.
"""


def _watch() -> None:
    """Install the hook that starts the capture when torch is imported."""
    folder = os.environ.get("SHRINKFX_CAPTURE")
    if not folder or not os.path.isdir(folder):
        return
    package = ModuleType(NAME)
    package.__path__ = [_ROOT]
    sys.modules[NAME] = package
    import_module(f"{NAME}.{_WATCHING}.after_import").BeforeTorch(folder).install()


def _run_the_next() -> None:
    """Import the ``sitecustomize`` that Python would have imported without shrinkfx."""
    sys.path[:] = [place for place in sys.path if os.path.abspath(place) != _HERE]
    current = sys.modules.pop("sitecustomize")
    try:
        import_module("sitecustomize")
    except ModuleNotFoundError as error:
        if error.name != "sitecustomize":
            raise
        sys.modules["sitecustomize"] = current  # the import system looks for it there


_HERE = os.path.dirname(os.path.abspath(__file__))
_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(_HERE)))
_WATCHING = "worker.intake.watching"

if _HERE in os.environ.get("PYTHONPATH", "").split(os.pathsep):  # shrinkfx set it
    try:
        _watch()
    except Exception as error:  # noqa: BLE001 - the script shall run, whatever we miss
        print(f"shrinkfx: cannot capture: {error!r}", file=sys.stderr)
    _run_the_next()
