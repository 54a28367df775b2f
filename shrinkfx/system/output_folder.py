"""The folder of a run: create it, and find the files in it."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable
from pathlib import Path

from shrinkfx.errors import Flag, UsageError

INTAKE = "intake"
"""Subfolder of the output folder for the program of a run that got no file."""

CAPTURE = "capture"
"""Subfolder of the output folder for the files that a captured script wrote."""

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
        where = Flag("--out", str(chosen or error.filename))
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
