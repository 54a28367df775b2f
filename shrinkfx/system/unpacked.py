"""Remove packages that AOTInductor's loader unpacked below ``/tmp`` and left there.

The loader of PyTorch 2.11 unpacks below ``/tmp`` whatever ``TMPDIR`` is
(``create_temp_dir`` of ``aoti_package/model_package_loader.cpp``); that of 2.13 unpacks
in the folder of the check. A loader removes its unpacked files when it is freed, so
they stay if the process dies.

The loader unpacks the source of the wrapper first. AOTInductor has appended the compile
commands to this source, so the wrapper in each unpacked folder names the folder where
its package was compiled.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

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
