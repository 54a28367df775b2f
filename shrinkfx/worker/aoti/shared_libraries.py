"""Extensions and object files that children share: each is compiled once."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shlex
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from shrinkfx.worker.aoti.object_store import OF_INTERPRETERS, SharedObjects
from shrinkfx.worker.private_api import fast_build_api

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

    with mock.patch.object(cpp_extension, "_run_ninja_build", build):
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


# Object files that are compiled once for all children of a server.
#
# g++ makes the same object from the same text and flags, so a child that needs an
# object which another child has compiled takes it, then links, loads and runs it. So
# a repro that is run again in forks, and candidates that differ only in values, are
# compiled once. A failed compile is repeated each time. Forks also take the objects of
# new interpreters, but these take none of forks.


_OBJECTS = (".wrapper.o", ".kernel.o")


def compile_everything() -> contextlib.AbstractContextManager[object]:
    """Make a child compile everything itself, so that it names its own files."""
    return mock.patch.object(SharedObjects, "copy_stored_object", return_value=False)


@contextlib.contextmanager
def shared_objects(folder: Path) -> Iterator[None]:
    """Share the objects that AOTInductor compiles with other children of the server.

    Args:
        folder: the folder of this child, in the server's folder.
    """
    if fast_build_api.FEATURE.missing:
        yield
        return
    stock: Callable[[fast_build_api.CppBuilder], None] = fast_build_api.CppBuilder.build
    shared = SharedObjects(folder, others=(OF_INTERPRETERS,))

    def build(builder: fast_build_api.CppBuilder) -> None:
        if not builder.get_target_file_path().endswith(_OBJECTS):
            stock(builder)
            return
        command = shlex.split(builder.get_command_line())
        if not shared.copy_stored_object(command):
            stock(builder)
            shared.store_object(command)

    with mock.patch.object(fast_build_api.CppBuilder, "build", build):
        yield
