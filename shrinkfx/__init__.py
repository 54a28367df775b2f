"""Reduce an exported PyTorch program that fails under AOTInductor.

>>> import shrinkfx
>>> reduction = shrinkfx.minify("model.pt2", until="assert")  # doctest: +SKIP
"""

from importlib import import_module
from typing import TYPE_CHECKING

from shrinkfx.versions import __version__

__all__ = ["Reduction", "ShrinkfxError", "__version__", "catch", "minify", "triage"]

if TYPE_CHECKING:
    from shrinkfx.api import Reduction, catch, minify
    from shrinkfx.campaign.triage import triage
    from shrinkfx.errors import ShrinkfxError
else:

    def __getattr__(name: str) -> object:
        """Import a name on first use, because --help and the worker do not need it."""
        module = {"ShrinkfxError": "errors", "triage": "campaign.triage"}
        module |= dict.fromkeys(("Reduction", "catch", "minify"), "api")
        if name in module:
            return getattr(import_module(f"{__name__}.{module[name]}"), name)
        if name in module.values():
            return import_module(f"{__name__}.{name}")
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
