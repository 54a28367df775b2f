"""Objects that were compiled, by the text, the flags and the compiler.

Imports no torch: a compiler that takes objects from here starts quickly.
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
"""Objects that are kept: who comes to the same text mostly comes to it soon."""


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

    def take(self, command: Sequence[str]) -> bool:
        """Put in place what another child has made by the same command, if any has."""
        with contextlib.suppress(OSError):  # it is not there, or the disk is full
            place = self._place(command)
            shutil.copyfile(place, _made_by(command))
            os.utime(place)
            return True
        return False

    def leave(self, command: Sequence[str]) -> None:
        """Leave all of it or nothing: the child may be killed."""
        with contextlib.suppress(OSError):
            place = self._place(command)
            draft = place.with_suffix(f".{os.getpid()}")
            shutil.copyfile(_made_by(command), draft)
            draft.replace(place)
            kept = sorted(place.parent.glob(f"{self.name}-*"), key=_last_used)
            for old in kept[:-MOST]:
                old.unlink(missing_ok=True)

    def _place(self, command: Sequence[str]) -> Path:
        if self.folder is None:
            raise FileNotFoundError("no other child is to have it")
        return self.folder.parent / f"{self.name}-{key(command, self.folder)}"


NOT_SHARED = SharedObjects(None)


def _made_by(command: Sequence[str]) -> str:
    return command[command.index("-o") + 1]


def _last_used(path: Path) -> float:
    with contextlib.suppress(OSError):  # another child has just dropped it
        return path.stat().st_mtime
    return 0.0


def key(command: Sequence[str], *folders: Path) -> str:
    """Tell apart what is compiled of other texts, or with other flags.

    A kernel's file is named for its text, which names a header in the child's folder.

    Args:
        folders: what the child's is and was called; that makes no difference.

    Raises:
        OSError: a text cannot be read.
    """
    own, found = [os.fsencode(folder) for folder in folders], hashlib.sha256()
    names = [os.fsencode(Path(word).name) for word in command if word.endswith(_NAMED)]

    def plain(text: bytes) -> bytes:
        for folder in own:
            text = text.replace(folder, b"")
        text = _HEADERS.sub(b"", text)
        for name in names:
            text = text.replace(name, name[name.index(b".") :])
        return text

    for word in command:
        found.update(plain(os.fsencode(word)) + b"\0")
        if word.endswith(".cpp"):
            text = _REMARKS.sub(b"", plain(Path(word).read_bytes()))
            found.update(text + b"\0")
    return found.hexdigest()[:24]


_NAMED = (".cpp", ".o")

_HEADERS = re.compile(rb"[^\s\"]*(?=/precompiled_headers/)")
"""Where precompiled headers lie; each is named for what it was compiled of."""

_REMARKS = re.compile(rb"(\n|\n//[^\n]*)*\Z")
"""At the end, where AOTInductor adds how a text was compiled, each time that it is."""
