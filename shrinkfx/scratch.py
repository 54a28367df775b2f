"""Temporary folders of this process, which the next one clears away if it is killed.

All lie in one folder with a lock that the kernel gives up with the process, however
that ends, and whatever other processes can be seen from here.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import functools
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from shrinkfx import unpacked
from shrinkfx.errors import StorageError

_PREFIX = "shrinkfx-"
_LOCK = ".lock"


def folder(purpose: str) -> tempfile.TemporaryDirectory[str]:
    """Make a folder that is gone at the end of the block."""
    return tempfile.TemporaryDirectory(prefix=f"{purpose}-", dir=root())


@functools.cache
def root() -> Path:
    """Make the folder of all, once in this process.

    Raises:
        StorageError: nothing can be written where temporary files would lie.
    """
    made = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=_temporary()))
    draft = made / f"{_LOCK}.new"
    lock = os.open(draft, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC)
    fcntl.flock(lock, fcntl.LOCK_EX)
    draft.rename(made / _LOCK)  # whoever finds it finds it locked
    # What has a lock itself is left alone by systemd, which clears old files away.
    fcntl.flock(os.open(made, os.O_RDONLY | os.O_CLOEXEC), fcntl.LOCK_SH)
    atexit.register(_remove, made, os.getpid())
    return made


def is_removed() -> bool:
    """Tell whether something has removed the folder of all."""
    return not root().is_dir()


def _temporary() -> Path:
    try:
        return Path(tempfile.gettempdir())
    except FileNotFoundError as error:
        advice = "set TMPDIR to a folder that can be written to, on a disk with space"
        raise StorageError("$TMPDIR", str(error.strerror), advice) from error


def may_be_loaded_from() -> bool:
    """Tell whether libraries can be loaded from there: not where it is ``noexec``."""
    return not os.statvfs(root()).f_flag & os.ST_NOEXEC


def _remove(made: Path, owner: int) -> None:
    if os.getpid() == owner:  # and not a copy that somebody has forked
        shutil.rmtree(made, ignore_errors=True)


def abandoned() -> Iterator[Path]:
    """Yield the folders of processes that were killed; remove each afterwards."""
    for lock in sorted(_temporary().glob(f"{_PREFIX}*/{_LOCK}")):
        with contextlib.suppress(OSError), lock.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield lock.parent
            unpacked.remove(lock.parent)
