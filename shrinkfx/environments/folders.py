"""Environments on disk: found, made and removed in a folder of the user's cache.

A venv cannot be moved: its files name their paths. So each is made in its place, and
counts from the moment on that a marker lies beside it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

from shrinkfx import user_cache
from shrinkfx.check.client.orphans import clear_orphans
from shrinkfx.environments.installers import Installer
from shrinkfx.errors import InstallError, UsageError
from shrinkfx.folder_lock import is_taken, taken

_MARKER, _VENV = "complete", "venv"

_UNUSED_S = 60 * 86_400.0
"""Seconds after which an environment that nobody has used is removed."""

_OTHER = "XDG_CACHE_HOME"
"""The variable that names another folder."""

ADVICE = f"free some space, or set {_OTHER} to a folder on another disk"


def home() -> Path:
    """Return the folder of all environments; it need not exist.

    It lies outside of the folder of compiled files: what is not used there is removed
    file by file.
    """
    return user_cache.folder("shrinkfx-environments").absolute()


def free_bytes() -> int:
    """Return the free space of the disk on which environments are made."""
    place = home()
    while not place.exists():
        place = place.parent
    return shutil.disk_usage(place).free


def find(version: str) -> str | None:
    """Return the interpreter of a complete environment, which counts as used now."""
    place = _place(version)
    python = place / _VENV / "bin" / "python"
    if not (place / _MARKER).exists() or not os.access(python, os.X_OK):
        return None
    with contextlib.suppress(OSError):  # a disk that is only read
        os.utime(place / _MARKER)
    return str(python)


def make(version: str, installer: Installer, wait: Callable[[], None]) -> str:
    """Return the interpreter of an environment, which is made if it is missing.

    Args:
        wait: called once where another process makes the same one.

    Raises:
        InstallError: it cannot be made; no part of it stays.
    """
    place = _place(version)
    if is_taken(place):
        wait()
    while is_taken(place):
        time.sleep(0.5)
    try:
        with taken(place, _OTHER):
            python = find(version) or _make(version, installer, place)
    except OSError as error:
        raise InstallError(str(place), str(error.strerror), ADVICE) from error
    finally:
        _remove_if_empty(place)
    return python


def _make(version: str, installer: Installer, place: Path) -> str:
    _empty(place)
    try:
        installer.install(version, place / _VENV)
        (place / _MARKER).touch()
    except BaseException:
        _empty(place)
        raise
    return str(place / _VENV / "bin" / "python")


def remove_unusable() -> None:
    """Remove what was interrupted, and what nobody has used for 60 days.

    An installer that has outlived its shrinkfx is killed before.
    """
    clear_orphans()
    for place in home().glob("*/"):
        with contextlib.suppress(UsageError, OSError), taken(place, _OTHER):
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
    shutil.rmtree(place / _VENV, ignore_errors=True)


def _remove_if_empty(place: Path) -> None:
    with contextlib.suppress(OSError):
        place.rmdir()


def _place(version: str) -> Path:
    return home() / f"torch-{version}-{sys.implementation.cache_tag}"
