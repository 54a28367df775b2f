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
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from shrinkfx.errors import StorageError

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
            remove_with_packages(lock.parent)


# Remove packages that AOTInductor's loader unpacked below ``/tmp`` and left there.
#
# The loader of PyTorch 2.11 unpacks below ``/tmp`` whatever ``TMPDIR`` is
# (``create_temp_dir`` of ``aoti_package/model_package_loader.cpp``); that of 2.13
# unpacks in the folder of the check. A loader removes its unpacked files when it is
# freed, so they stay if the process dies.
#
# The loader unpacks the source of the wrapper first. AOTInductor has appended the
# compile commands to this source, so the wrapper in each unpacked folder names the
# folder where its package was compiled.

PLACE = Path("/tmp")

_NAME = re.compile(r"[A-Za-z0-9]{6}")
"""The name of a folder: what ``mkdtemp`` puts in place of ``XXXXXX``."""

_WRAPPER = "*/data/aotinductor/*/*.wrapper.cpp"

_COMMANDS_BYTES = 1 << 16
"""Number of bytes at the end of a wrapper that contain both compile commands."""


def remove_with_packages(folder: Path) -> None:
    """Remove a folder, and the unpacked files of packages that were compiled in it.

    All processes that use the folder must have ended.
    """
    shutil.rmtree(folder, ignore_errors=True)
    remove_packages(f"{folder}{os.sep}")


def remove_packages(beginning: str) -> None:
    """Remove the unpacked files of packages that were compiled below a path.

    All processes that compiled or loaded these packages must have ended.

    Args:
        beginning: prefix of the paths of the folders in which they were compiled.
    """
    head, tail = os.path.split(beginning)
    spellings = [beginning, os.path.join(os.path.realpath(head), tail)]
    needles = {os.fsencode(spelling) for spelling in spellings}
    for folder in _list_unpacked_folders():
        commands = b"".join(map(_read_end, folder.glob(_WRAPPER)))
        if any(needle in commands for needle in needles):
            shutil.rmtree(folder, ignore_errors=True)


def _list_unpacked_folders() -> Iterator[Path]:
    """Yield the folders that may be unpacked packages: private ones of this user."""
    with contextlib.suppress(OSError), os.scandir(PLACE) as entries:
        for entry in entries:
            if _NAME.fullmatch(entry.name) and _is_private(entry):
                yield Path(entry.path)


def _is_private(entry: os.DirEntry[str]) -> bool:
    with contextlib.suppress(OSError):
        seen = entry.stat(follow_symlinks=False)
        is_ours = seen.st_uid == os.geteuid() and not seen.st_mode & 0o077
        return stat.S_ISDIR(seen.st_mode) and is_ours
    return False


def _read_end(path: Path) -> bytes:
    with contextlib.suppress(OSError), path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _COMMANDS_BYTES))
        return file.read()
    return b""
