"""A store of compiled object files, by source text, flags and compiler.

Imports no torch, so that a compiler wrapper that uses the store starts quickly.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

MOST = 32
"""The number of objects to keep: a text mostly comes again soon, or never."""


@dataclass(frozen=True)
class SharedObjects:
    """The objects that the children of a server have compiled.

    Attributes:
        folder: the folder of this child, in the folder of the server; its path in a
            command or a text makes no difference. None if nothing is shared.
        name: of this store, among those of the server.
    """

    folder: Path | None
    name: str = "object"

    def copy_stored_object(self, command: Sequence[str]) -> bool:
        """Copy the object that another child has compiled with the same command.

        Returns:
            Whether there was one.
        """
        with contextlib.suppress(OSError):  # there is none, or the disk is full
            place = self._place(command)
            shutil.copyfile(place, _output_of(command))
            os.utime(place)
            return True
        return False

    def store_object(self, command: Sequence[str]) -> None:
        """Store a command's output in one step, because the child may be killed."""
        with contextlib.suppress(OSError):
            place = self._place(command)
            draft = place.with_suffix(f".{os.getpid()}")
            shutil.copyfile(_output_of(command), draft)
            draft.replace(place)
            objects = sorted(place.parent.glob(f"{self.name}-*"), key=_last_used)
            for old in objects[:-MOST]:
                old.unlink(missing_ok=True)

    def _place(self, command: Sequence[str]) -> Path:
        if self.folder is None:
            raise FileNotFoundError("no other child is to have it")
        return self.folder.parent / f"{self.name}-{key(command, self.folder)}"


NOT_SHARED = SharedObjects(None)


def _output_of(command: Sequence[str]) -> str:
    return command[command.index("-o") + 1]


def _last_used(path: Path) -> float:
    with contextlib.suppress(OSError):  # another child has just removed it
        return path.stat().st_mtime
    return 0.0


def key(command: Sequence[str], *folders: Path) -> str:
    """Return a key of the command, the source texts and the compiler.

    The name of a kernel's file is a hash of its text, which names a header in the
    child's folder, so such names do not count.

    Args:
        folders: the present and former folders of the child, which do not count either.

    Raises:
        OSError: a source file cannot be read.
    """
    encoded, digest = [os.fsencode(folder) for folder in folders], hashlib.sha256()
    names = [os.fsencode(Path(word).name) for word in command if word.endswith(_NAMED)]

    def normalize(text: bytes) -> bytes:
        for folder in encoded:
            text = text.replace(folder, b"")
        text = _HEADERS.sub(b"", text)
        for name in names:
            text = text.replace(name, name[name.index(b".") :])
        return text

    for word in command:
        digest.update(normalize(os.fsencode(word)) + b"\0")
        if word.endswith(".cpp"):
            text = _REMARKS.sub(b"", normalize(Path(word).read_bytes()))
            digest.update(text + b"\0")
    return digest.hexdigest()[:24]


_NAMED = (".cpp", ".o")

_HEADERS = re.compile(rb"[^\s\"]*(?=/precompiled_headers/)")
"""The folder of precompiled headers; the name of a header is a hash of its source."""

_REMARKS = re.compile(rb"(\n|\n//[^\n]*)*\Z")
"""The comments at the end, where AOTInductor appends the commands at each compile."""
