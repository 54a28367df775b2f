"""What is compiled once for all runs of a user."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

from shrinkfx import user_cache


def folder() -> Path:
    """Name the user's folder for it; it need not exist."""
    return user_cache.folder("shrinkfx")


_KEPT_DAYS = 60
_KEPT_BYTES = 512 << 20


def note_use(path: Path) -> None:
    """Have a file count as just used."""
    with contextlib.suppress(OSError):  # another user's, or a read-only disk's
        os.utime(path)


def forget_old() -> None:
    """Remove what has not been used for long, of an earlier PyTorch say.

    What is kept is bounded: the least recently used goes first. A process that has
    loaded or linked a file does not need its name any more.
    """
    files = [path for path in folder().rglob("*") if path.is_file()]
    used = {path: path.stat() for path in files}
    oldest, left = time.time() - _KEPT_DAYS * 86_400, _KEPT_BYTES
    for path in sorted(used, key=lambda path: -used[path].st_mtime):
        left -= used[path].st_size
        if used[path].st_mtime < oldest or left < 0:
            path.unlink(missing_ok=True)


def identity(compiler: str) -> str:
    """Tell a compiler, or a library, from another one at the same path.

    Args:
        compiler: its path.
    """
    path = Path(compiler).resolve()
    stat = path.stat()
    return f"{path} {stat.st_size} {stat.st_mtime_ns}"
