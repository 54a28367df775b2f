"""Find, make and remove environments in a folder of the user's cache.

A venv cannot be moved, because its files contain their paths. So each environment is
made in its final place, and counts as complete once a marker file exists next to it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

from shrinkfx.check.client.orphans import clear_orphans
from shrinkfx.environments.installers import Installer
from shrinkfx.errors import InstallError, UsageError
from shrinkfx.system import user_cache
from shrinkfx.system.folder_lock import is_folder_locked, lock_folder

_MARKER, _VENV = "complete", "venv"

_TEMPORARY = "tmp"
"""The folder of an installer's temporary files, which an installer that is killed
cannot remove."""

_UNUSED_S = 60 * 86_400.0
"""Seconds after which an unused environment is removed."""

_VARIABLE = "XDG_CACHE_HOME"
"""The environment variable that names another cache folder."""

ADVICE = f"free some space, or set {_VARIABLE} to a folder on another disk"


def home() -> Path:
    """Return the folder of all environments; it need not exist.

    It is not in the folder of compiled files, because unused files are removed from
    that folder one by one.
    """
    return user_cache.cache_folder("shrinkfx-environments").absolute()


def free_bytes() -> int:
    """Return the free space of the disk on which environments are made."""
    place = home()
    while not place.exists():
        place = place.parent
    return shutil.disk_usage(place).free


def find(version: str) -> str | None:
    """Return the interpreter of a complete environment, and mark it as used now."""
    place = _place(version)
    python = place / _VENV / "bin" / "python"
    if not (place / _MARKER).exists() or not os.access(python, os.X_OK):
        return None
    with contextlib.suppress(OSError):  # a read-only disk
        os.utime(place / _MARKER)
    return str(python)


def make(version: str, installer: Installer, wait: Callable[[], None]) -> str:
    """Return the interpreter of an environment; make the environment if necessary.

    Args:
        wait: called once if another process is making the same environment.

    Raises:
        InstallError: the environment cannot be made; no part of it remains.
    """
    place = _place(version)
    if is_folder_locked(place):
        wait()
    try:
        with lock_folder(place, _VARIABLE, waits=True):
            python = find(version) or _make(version, installer, place)
    except OSError as error:
        raise InstallError(str(place), str(error.strerror), ADVICE) from error
    finally:
        _remove_if_empty(place)
    return python


def _make(version: str, installer: Installer, place: Path) -> str:
    _empty(place)
    temporary = place / _TEMPORARY
    try:
        temporary.mkdir()
        installer.install(version, place / _VENV, temporary)
        shutil.rmtree(temporary, ignore_errors=True)
        (place / _MARKER).touch()
    except BaseException:
        _empty(place)
        raise
    return str(place / _VENV / "bin" / "python")


def remove_unusable() -> None:
    """Remove interrupted installations, and environments unused for 60 days.

    Kill installers first that have outlived their shrinkfx process.
    """
    clear_orphans()
    for place in home().glob("*/"):
        with contextlib.suppress(UsageError, OSError), lock_folder(place, _VARIABLE):
            if not _is_usable(place):
                _empty(place)
        _remove_if_empty(place)


def _is_usable(place: Path) -> bool:
    try:
        return (place / _MARKER).stat().st_mtime > time.time() - _UNUSED_S
    except OSError:
        return False


def _empty(place: Path) -> None:
    (place / _MARKER).unlink(missing_ok=True)
    for folder in (_VENV, _TEMPORARY):
        shutil.rmtree(place / folder, ignore_errors=True)


def _remove_if_empty(place: Path) -> None:
    with contextlib.suppress(OSError):
        place.rmdir()


def _place(version: str) -> Path:
    return home() / f"torch-{version}-{sys.implementation.cache_tag}"
