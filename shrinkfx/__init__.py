"""Reduce an exported PyTorch program that fails under AOTInductor.

>>> import shrinkfx
>>> reduction = shrinkfx.minify("model.pt2", until="assert")  # doctest: +SKIP
"""

from shrinkfx.api import Reduction, minify
from shrinkfx.errors import ShrinkfxError
from shrinkfx.version import __version__

__all__ = ["Reduction", "ShrinkfxError", "__version__", "minify"]
