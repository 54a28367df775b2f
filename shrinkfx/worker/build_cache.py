"""The user's cache of compiled libraries, which all runs share."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

from shrinkfx.system.folders import cache_folder


def folder() -> Path:
    """Return the cache folder of the user; it need not exist."""
    return cache_folder("shrinkfx")


_MAX_DAYS = 60
_MAX_BYTES = 512 << 20


def note_use(path: Path) -> None:
    """Set the time of last use of a cached file to now."""
    with contextlib.suppress(OSError):  # another user's file, or a read-only disk
        os.utime(path)


def forget_old() -> None:
    """Remove files that were not used for long, such as those of an earlier PyTorch.

    The cache has a size limit; the least recently used files go first. A process that
    has loaded or linked a file does not need its name any more.
    """
    files = [path for path in folder().rglob("*") if path.is_file()]
    used = {path: path.stat() for path in files}
    oldest, remaining = time.time() - _MAX_DAYS * 86_400, _MAX_BYTES
    for path in sorted(used, key=lambda path: -used[path].st_mtime):
        remaining -= used[path].st_size
        if used[path].st_mtime < oldest or remaining < 0:
            path.unlink(missing_ok=True)


def identity(compiler: str) -> str:
    """Return a string that distinguishes a compiler or library from others at its path.

    Args:
        compiler: the path of the compiler or library.
    """
    path = Path(compiler).resolve()
    stat = path.stat()
    return f"{path} {stat.st_size} {stat.st_mtime_ns}"
