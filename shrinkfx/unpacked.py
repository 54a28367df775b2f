"""Packages that AOTInductor's loader has unpacked below ``/tmp`` and left there.

PyTorch 2.11 does that whatever ``TMPDIR`` is (``create_temp_dir`` of
``aoti_package/model_package_loader.cpp``), 2.13 in the folder of the check. A loader
removes what it has unpacked when it is freed, so a process that dies leaves it all.

What it unpacks first is the text of the wrapper, and AOTInductor has added to that by
which commands it was compiled: so each folder names the one that its package is from.
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
"""What ``mkdtemp`` puts in the place of ``XXXXXX``."""

_WRAPPER = "*/data/aotinductor/*/*.wrapper.cpp"

_COMMANDS_BYTES = 1 << 16
"""The end of a wrapper, in which both commands lie."""


def remove(folder: Path) -> None:
    """Remove a folder, and what was unpacked of packages that were compiled there.

    Processes that had to do with it must have ended.
    """
    shutil.rmtree(folder, ignore_errors=True)
    clear(f"{folder}{os.sep}")


def clear(beginning: str) -> None:
    """Remove what was unpacked of packages that were compiled below such a path.

    Nobody but those who have compiled these may load them, and they must have ended.

    Args:
        beginning: how the paths of folders begin in which they were compiled.
    """
    head, tail = os.path.split(beginning)
    spellings = [beginning, os.path.join(os.path.realpath(head), tail)]
    needles = {os.fsencode(spelling) for spelling in spellings}
    for folder in _unpacked():
        commands = b"".join(map(_end_of, folder.glob(_WRAPPER)))
        if any(needle in commands for needle in needles):
            shutil.rmtree(folder, ignore_errors=True)


def _unpacked() -> Iterator[Path]:
    """Yield what may be such folders: of this user, and closed to all others."""
    with contextlib.suppress(OSError), os.scandir(PLACE) as entries:
        for entry in entries:
            if _NAME.fullmatch(entry.name) and _is_private(entry):
                yield Path(entry.path)


def _is_private(entry: os.DirEntry[str]) -> bool:
    with contextlib.suppress(OSError):
        seen = entry.stat(follow_symlinks=False)
        own = seen.st_uid == os.geteuid() and not seen.st_mode & 0o077
        return stat.S_ISDIR(seen.st_mode) and own
    return False


def _end_of(path: Path) -> bytes:
    with contextlib.suppress(OSError), path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _COMMANDS_BYTES))
        return file.read()
    return b""
