"""Object files and C++ extensions that are compiled once for all children."""

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
from typing import Any

from shrinkfx.worker.aoti.patching import replace_attribute
from shrinkfx.worker.private_api import build_api

# g++ makes the same object from the same text and flags, so a child that needs an
# object which another child has compiled takes it, then links, loads and runs it. So
# a repro that is run again in forks, and candidates that differ only in values, are
# compiled once. A failed compile is repeated each time, and a new interpreter
# compiles everything itself.

_OBJECTS = (".wrapper.o", ".kernel.o")


def compile_everything() -> contextlib.AbstractContextManager[None]:
    """Make a child compile everything itself, so that it names its own files."""
    return replace_attribute(
        SharedObjects, "copy_stored_object", lambda shared, command: False
    )


@contextlib.contextmanager
def shared_objects(folder: Path) -> Iterator[None]:
    """Share the objects that AOTInductor compiles with other children of the server.

    Args:
        folder: the folder of this child, in the server's folder.
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
        if not shared.copy_stored_object(command):
            stock(builder)
            shared.store_object(command)

    with replace_attribute(build_api.CppBuilder, "build", build):
        yield


# A store of compiled object files, by source text, flags and compiler.
#
# Imports no torch, so that a compiler wrapper that uses the store starts quickly.

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


# C++ operators that a script compiles, compiled once for the children of a server.
#
# PyTorch's headers make that expensive: 12 CPU-seconds for a small operator, and 28
# with the headers that ``load_inline`` adds (docs/decisions.md). A child with the
# same texts and flags as an earlier one loads that child's library; a new interpreter
# compiles its own.

_BUILDER = "cpp_extension"

_SOURCES = re.compile(r"^build \S+: \w*compile (.+)$", re.MULTILINE)
"""A line of ``build.ninja`` that names a source to compile."""

_INCLUDES = re.compile(r"(^|\s)-(I|include|imacros|iquote|idirafter)", re.MULTILINE)
"""A flag by which a source may include files that the key does not cover."""


@contextlib.contextmanager
def shared_extensions(folder: Path, script: Path) -> Iterator[None]:
    """Share what ``torch.utils.cpp_extension`` compiles with a server's children.

    Args:
        folder: the folder of this child, which contains the script's home; its parent
            is the server's folder.
        script: the script to run. If it does not name ``cpp_extension``, nothing is
            shared, because importing that module is slow.
    """
    if _BUILDER not in script.read_text(encoding="utf-8"):
        yield
        return
    from torch.utils import cpp_extension

    compile_all = cpp_extension._run_ninja_build

    def build(build_directory: str, *args: Any, **kwargs: Any) -> None:
        build_folder = Path(build_directory)
        place = _place(build_folder, folder)
        if place is None:
            compile_all(build_directory, *args, **kwargs)
        elif not _take(place, build_folder):
            compile_all(build_directory, *args, **kwargs)
            _leave(build_folder, place)

    with replace_attribute(cpp_extension, "_run_ninja_build", build):
        yield


def _take(place: Path, build_folder: Path) -> bool:
    with contextlib.suppress(OSError):  # it does not exist, or the disk is full
        for library in place.iterdir():
            shutil.copyfile(library, build_folder / library.name)
        return True
    return False


def _leave(build_folder: Path, place: Path) -> None:
    """Store the libraries in one step, because the child may be killed."""
    draft = place.with_suffix(f".{os.getpid()}")
    with contextlib.suppress(OSError):  # another child was faster, or a full disk
        draft.mkdir()
        for library in build_folder.glob("*.so"):
            shutil.copyfile(library, draft / library.name)
        draft.rename(place)
    shutil.rmtree(draft, ignore_errors=True)


def _place(build_folder: Path, folder: Path) -> Path | None:
    """Return the store's folder for these sources; None if they are not all known."""
    with contextlib.suppress(OSError):
        ninja = (build_folder / "build.ninja").read_text(encoding="utf-8")
        sources = [Path(name) for name in _SOURCES.findall(ninja)]
        if not sources or _INCLUDES.search(ninja):
            return None
        digest = hashlib.sha256(ninja.replace(str(folder), "").encode())
        for source in sources:
            if source.parent != build_folder:
                return None
            digest.update(b"\0" + source.read_bytes())
        return folder.parent / f"extension-{digest.hexdigest()[:24]}"
    return None
