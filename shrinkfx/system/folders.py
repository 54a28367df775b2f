"""Folders: the cache, the folder of a run and its lock, and files in one step."""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import IO, Any

from shrinkfx.errors import UsageError


def cache_folder(name: str) -> Path:
    """Return the path of a folder in the user's cache folder; it need not exist."""
    chosen = os.environ.get("XDG_CACHE_HOME")
    return (Path(chosen) if chosen else Path.home() / ".cache") / name


DRAFT = "draft-"
"""Name prefix of files and folders that are not complete yet."""


def draft_of(path: Path) -> Path:
    """Return the path of the draft that ``publish`` renames to ``path``."""
    return path.with_name(f"{DRAFT}{path.name}")


def publish_draft(path: Path) -> None:
    """Rename the draft of ``path`` to ``path`` in one step."""
    draft = draft_of(path)
    with draft.open("rb") as file:
        os.fsync(file.fileno())  # a power failure could otherwise leave an empty file
    draft.replace(path)


def write_json(path: Path, data: Mapping[str, Any], indent: int = 2) -> None:
    """Write JSON to ``path`` atomically."""
    draft_of(path).write_text(json.dumps(data, indent=indent) + "\n")
    publish_draft(path)


JOURNAL, SUMMARY, ISSUE = "journal.sqlite", "summary.json", "ISSUE.md"
"""Names of files in the folder of a run: its record, its result, and the bug report."""

INTAKE = "intake"
"""Subfolder of the output folder for the program of a run that got no file."""

CAPTURE = "capture"
"""Subfolder of the output folder for the files that a captured script wrote."""

CAPTURE_END = "end.json"
"""Name of the file in that folder that records how the script ended; once it exists, a
captured program can be reduced.
"""

MINIMAL, MINIMAL_AS_SOURCE = "minimal.pt2", "minimal.zip"
"""File names of the reduced program: as ``torch.export.save`` saves it, and as a source
archive."""

_NAME_BYTES = 200
"""Maximum bytes of a model's name in its folder's name; file systems allow 255."""


def output_folder(chosen: Path | None, model: Path) -> Path:
    """Create the folder of a run; the default has the next free number.

    Raises:
        UsageError: the folder cannot be created or is not writable.
    """
    name = model.stem.encode()[:_NAME_BYTES].decode(errors="ignore")
    free = (Path("shrinkfx-out") / f"{name}-{n}" for n in itertools.count(1))
    try:
        folder = next(filter(_is_new, free)) if chosen is None else chosen
        folder.mkdir(parents=True, exist_ok=True)
        (folder / ".writable").touch()
        (folder / ".writable").unlink(missing_ok=True)
    except OSError as error:
        where = f"--out {chosen or error.filename}"
        advice = "name a folder that can be written to"
        raise UsageError(where, f": {error.strerror}: {advice}") from error
    return folder


def _is_new(folder: Path) -> bool:
    """Create a folder; return False if it exists, because another run may own it."""
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        return False
    return True


def remove_if_empty(folder: Path) -> None:
    """Remove the folder of a run that produced nothing."""
    with contextlib.suppress(OSError):  # it does not exist, or is not empty
        folder.rmdir()


def moved_file_finder(out: Path) -> Callable[[Path], Path]:
    """Return a function that finds files of a run's folder after the folder has moved.

    A file in the intake or capture folder is identified by the names of folder and
    file, even if its old path exists; any other file only if its old path does not
    exist.
    """

    def find(path: Path) -> Path:
        folder, run_folder = path.parent.name, out.resolve()
        if folder in (INTAKE, CAPTURE) and (run_folder / folder / path.name).is_file():
            return run_folder / folder / path.name
        is_gone = not path.is_file() and (run_folder / path.name).is_file()
        return run_folder / path.name if is_gone else path

    return find


def minimal_program(folder: Path) -> Path:
    """Return the path of the reduced program."""
    as_source = folder / MINIMAL_AS_SOURCE
    return as_source if as_source.exists() else folder / MINIMAL


LOCK = ".lock"

_TRIES = 5
_PAUSE_S = 0.02
"""Seconds between tries. All tries together take longer than ``is_folder_locked`` holds
the lock."""

_OUT = "--out"

_held_folders: ContextVar[frozenset[Path]] = ContextVar("_held", default=frozenset())
"""Folders that the caller has locked. A new thread starts with none of them."""


@contextlib.contextmanager
def lock_folder(
    folder: Path, other: str = _OUT, *, waits: bool = False
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
def _hold_lock(path: Path, other: str, *, waits: bool) -> Iterator[None]:
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


def _open_lock_file(path: Path, other: str) -> IO[str]:
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
