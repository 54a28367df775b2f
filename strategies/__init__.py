"""The built-in strategies: each public class with a name is one.

Import them as ``shrinkfx.strategies`` only, through the symlink in ``shrinkfx/``.
"""

if __name__ != "shrinkfx.strategies":
    raise ImportError(f"import shrinkfx.strategies, not {__name__}")
