"""The lock on the folder of a run, which only one process at a time may use."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import IO

from shrinkfx.errors import Flag, MessagePart, UsageError

LOCK = ".lock"

_TRIES = 5
_PAUSE_S = 0.02
"""Seconds between tries. All tries together take longer than ``is_folder_locked`` holds
the lock."""

_OUT = Flag("--out")

_held_folders: ContextVar[frozenset[Path]] = ContextVar("_held", default=frozenset())
"""Folders that the caller has locked. A new thread starts with none of them."""


@contextlib.contextmanager
def lock_folder(
    folder: Path, other: MessagePart = _OUT, *, waits: bool = False
) -> Iterator[None]:
    """Lock a folder for this process during the block.

    The kernel releases the lock if the process dies. A nested block for the same folder
    has no effect, so the caller that decides whether a run may begin keeps the lock
    until the run is over.

    Args:
        folder: the folder to lock.
        other: the option that selects another folder, for error messages.
        waits: wait if another process holds the lock, instead of raising an error.

    Raises:
        UsageError: another process holds the lock, or the folder is not writable.
    """
    place = folder.resolve()
    if place in _held_folders.get():
        yield
        return
    path = folder / LOCK
    with _hold_lock(path, other, waits=waits):
        before = _held_folders.set(_held_folders.get() | {place})
        try:
            yield
        finally:
            _held_folders.reset(before)
            path.unlink(missing_ok=True)


def is_folder_locked(folder: Path) -> bool:
    """Return whether a process holds the lock of a folder."""
    try:
        with (folder / LOCK).open() as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # the lock does not exist or cannot be read
        return False
    return False


@contextlib.contextmanager
def _hold_lock(path: Path, other: MessagePart, *, waits: bool) -> Iterator[None]:
    """Hold the lock of the file that is at the path now.

    A process that leaves unlinks the file. Another process that had already opened the
    file would then lock a file that no other process can find, so it must open the path
    again.
    """
    while True:
        with _open_lock_file(path, other) as file:
            try:
                _acquire_lock(file, waits=waits)
            except BlockingIOError:
                raise UsageError(
                    f"another shrinkfx is running in {path.parent}: wait until it "
                    "ends, or name another ",
                    other,
                ) from None
            if _is_at_path(file, path):
                yield
                return


def _acquire_lock(file: IO[str], *, waits: bool) -> None:
    if waits:
        fcntl.flock(file, fcntl.LOCK_EX)
        return
    for _ in range(_TRIES):
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        time.sleep(_PAUSE_S)
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _open_lock_file(path: Path, other: MessagePart) -> IO[str]:
    """Open the file of a lock, and make its folder if necessary.

    Another run that ended without a result may just have removed the folder.
    """
    try:
        return path.open("w")
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
        return _open_lock_file(path, other)
    except PermissionError as error:
        reason = f"{path.parent} cannot be written to: {error.strerror}"
        message = f"{reason}: start a new run with another "
        raise UsageError(message, other) from error


def _is_at_path(file: IO[str], path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False
