"""The lock on the folder of a run: one process at a time works there."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import IO

from shrinkfx.errors import UsageError
from shrinkfx.wording import Flag, Said

LOCK = ".lock"

_TRIES = 5
_MOMENT_S = 0.02
"""Who only looks whether somebody is at work holds the lock for less."""

_OUT = Flag("--out")

_held: ContextVar[frozenset[Path]] = ContextVar("_held", default=frozenset())
"""Folders that whoever calls has taken; a thread of its own holds none of them."""


@contextlib.contextmanager
def taken(folder: Path, other: Said = _OUT, *, waits: bool = False) -> Iterator[None]:
    """Keep other processes out; the kernel opens the lock again if this one dies.

    Inside of such a block, another one for the same folder changes nothing: who looks
    whether a run may begin keeps the folder until that is over.

    Args:
        other: the setting that names another folder, for errors.
        waits: if another process is at work there, wait until it leaves.

    Raises:
        UsageError: another process is at work there, or nothing can be written.
    """
    place = folder.resolve()
    if place in _held.get():
        yield
        return
    path = folder / LOCK
    with _locked(path, other, waits=waits):
        before = _held.set(_held.get() | {place})
        try:
            yield
        finally:
            _held.reset(before)
            path.unlink(missing_ok=True)


def is_taken(folder: Path) -> bool:
    """Tell whether a process is at work in a folder."""
    try:
        with (folder / LOCK).open() as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # there is none, or it may not be read
        return False
    return False


@contextlib.contextmanager
def _locked(path: Path, other: Said, *, waits: bool) -> Iterator[None]:
    """Hold the lock of the file that has the name, not of one that had it before.

    Who leaves unlinks it. Whoever had opened it by then gets a lock that nobody else
    will ask for.
    """
    while True:
        with _opened(path, other) as file:
            try:
                _lock(file, waits=waits)
            except BlockingIOError:
                raise UsageError(
                    f"another shrinkfx is running in {path.parent}: wait until it "
                    "ends, or name another ",
                    other,
                ) from None
            if _is_named(file, path):
                yield
                return


def _lock(file: IO[str], *, waits: bool) -> None:
    if waits:
        fcntl.flock(file, fcntl.LOCK_EX)
        return
    for _ in range(_TRIES):
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        time.sleep(_MOMENT_S)
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _opened(path: Path, other: Said) -> IO[str]:
    """Open a lock; a run that has come to nothing may just have removed its folder."""
    try:
        return path.open("w")
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
        return _opened(path, other)
    except PermissionError as error:
        reason = f"{path.parent} cannot be written to: {error.strerror}"
        anew = f"{reason}: start a new run with another "
        raise UsageError(anew, other) from error


def _is_named(file: IO[str], path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False
