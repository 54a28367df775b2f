"""Temporary folders of this process, which the next run removes if it is killed.

All of them are in one root folder with a lock. The kernel releases the lock when the
process ends, in whatever way, so another process can recognize an abandoned folder even
if it cannot see this process.
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

from shrinkfx.errors import StorageError
from shrinkfx.system import unpacked

_PREFIX = "shrinkfx-"
_LOCK = ".lock"


def make_scratch_folder(purpose: str) -> tempfile.TemporaryDirectory[str]:
    """Make a temporary folder, which is removed at the end of the ``with`` block."""
    return tempfile.TemporaryDirectory(prefix=f"{purpose}-", dir=root())


@functools.cache
def root() -> Path:
    """Return the root folder of all temporary folders, which the first call makes.

    Raises:
        StorageError: no folder for temporary files is writable.
    """
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=_find_temporary_folder()))
    draft = folder / f"{_LOCK}.new"
    lock = os.open(draft, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC)
    fcntl.flock(lock, fcntl.LOCK_EX)
    draft.rename(folder / _LOCK)  # locked before it gets its name
    # systemd-tmpfiles, which removes old files, skips folders that are locked.
    fcntl.flock(os.open(folder, os.O_RDONLY | os.O_CLOEXEC), fcntl.LOCK_SH)
    atexit.register(_remove_root, folder, os.getpid())
    return folder


def is_root_removed() -> bool:
    """Return whether something has removed the root folder."""
    return not root().is_dir()


def _find_temporary_folder() -> Path:
    try:
        return Path(tempfile.gettempdir())
    except FileNotFoundError as error:
        advice = "set TMPDIR to a folder that can be written to, on a disk with space"
        raise StorageError("$TMPDIR", str(error.strerror), advice) from error


def allows_loading_libraries() -> bool:
    """Return whether libraries can be loaded from the root folder (no ``noexec``)."""
    return not os.statvfs(root()).f_flag & os.ST_NOEXEC


def _remove_root(made: Path, owner: int) -> None:
    if os.getpid() == owner:  # not in a forked child
        shutil.rmtree(made, ignore_errors=True)


def remove_abandoned_roots() -> Iterator[Path]:
    """Yield each root folder of a killed process, and remove it afterwards."""
    for lock in sorted(_find_temporary_folder().glob(f"{_PREFIX}*/{_LOCK}")):
        with contextlib.suppress(OSError), lock.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield lock.parent
            unpacked.remove_with_packages(lock.parent)
