"""Objects of the same text, compiled once for the children of a server.

That g++ makes the same of the same text and flags need not be seen twice: a child that
comes to what was compiled takes the object, and links, loads and runs it. So a repro is
run again in forks to see whether it fails each time, and candidates that differ in
values alone are compiled once. What does not compile is tried each time, and a new
interpreter compiles all of its own.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shlex
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from shrinkfx.worker.aoti.instead import instead
from shrinkfx.worker.private_api import build_api

_OBJECTS = (".wrapper.o", ".kernel.o")

MOST = 32
"""Objects that are kept: who comes to the same text mostly comes to it soon."""


@dataclass(frozen=True)
class SharedObjects:
    """What children of a server have compiled, for others.

    Attributes:
        folder: this child's, in that of the server. Where a command or a text names it,
            that of another child names its own. None where nothing is shared.
    """

    folder: Path | None

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
            kept = sorted(place.parent.glob("object-*"), key=_last_used)
            for old in kept[:-MOST]:
                old.unlink(missing_ok=True)

    def _place(self, command: Sequence[str]) -> Path:
        if self.folder is None:
            raise FileNotFoundError("no other child is to have it")
        return self.folder.parent / f"object-{key(command, self.folder)}"


NOT_SHARED = SharedObjects(None)


def nothing_taken() -> contextlib.AbstractContextManager[None]:
    """Have a child compile all of its own, so that it names its own files."""
    return instead(SharedObjects, "take", lambda shared, command: False)


def _made_by(command: Sequence[str]) -> str:
    return command[command.index("-o") + 1]


def _last_used(path: Path) -> float:
    with contextlib.suppress(OSError):  # another child has just dropped it
        return path.stat().st_mtime
    return 0.0


@contextlib.contextmanager
def shared_objects(folder: Path) -> Iterator[None]:
    """Share what AOTInductor compiles with other children of the server.

    Args:
        folder: this child's, in that of the server.
    """
    if build_api.FEATURE.missing:
        yield
        return
    stock: Callable[[build_api.CppBuilder], None] = build_api.CppBuilder.build
    shared = SharedObjects(folder)

    def build(builder: build_api.CppBuilder) -> None:
        if not builder.get_target_file_path().endswith(_OBJECTS):
            stock(builder)
            return
        command = shlex.split(builder.get_command_line())
        if not shared.take(command):
            stock(builder)
            shared.leave(command)

    with instead(build_api.CppBuilder, "build", build):
        yield


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
