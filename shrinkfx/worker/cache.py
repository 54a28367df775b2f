"""What is compiled once for all runs of a user."""

from __future__ import annotations

import os
from pathlib import Path


def folder() -> Path:
    """Name the user's folder for it; it need not exist."""
    chosen = os.environ.get("XDG_CACHE_HOME")
    return (Path(chosen) if chosen else Path.home() / ".cache") / "shrinkfx"


def identity(compiler: str) -> str:
    """Tell a compiler from another one at the same path.

    Args:
        compiler: its path.
    """
    path = Path(compiler).resolve()
    stat = path.stat()
    return f"{path} {stat.st_size} {stat.st_mtime_ns}"
