"""Libraries, extensions and object files that children share: each is compiled once."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shlex
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from shrinkfx.worker.aoti.object_store import SharedObjects, key
from shrinkfx.worker.aoti.patching import replace_attribute
from shrinkfx.worker.private_api import build_api

# The new interpreter compiles everything and leaves its cache: the source texts, each
# with its compile command, and the library. A fork that has the same texts and
# commands takes the library, then packs, loads and runs it. If anything differs, or
# if the program has weights, the fork compiles and links.

_CACHE_SUFFIX = "-afresh"

_TEXTS = (".wrapper.cpp", ".kernel.cpp")

_APPENDED_COMMANDS = re.compile(r"\n// Compile cmd\n// (.*)\n// Link cmd\n// (.*)\s*\Z")
"""The commands that AOTInductor appends to a source after compiling it."""

_NO_WEIGHTS = re.compile(r"start:\s*(\.space 1\s*)?\.globl\s+\w+_end\s+\w+_end:")
"""The weights file of a program without weights: one byte of space for the linker."""


def kept_cache_folder(folder: Path) -> Path:
    """Return the folder of a child's cache that outlives the child."""
    return folder.with_name(f"{folder.name}{_CACHE_SUFFIX}")


@contextlib.contextmanager
def shared_libraries(folder: Path) -> Iterator[None]:
    """Share objects with the other children of a server, and reuse libraries.

    Args:
        folder: the folder of this child, in the server's folder.
    """
    if build_api.FEATURE.missing:
        yield
        return
    with shared_objects(folder):
        compile_all = build_api.CppBuilder.build
        session = _ReusingBuild(folder, compile_all)

        def build(builder: build_api.CppBuilder) -> None:
            session.build(builder)

        with replace_attribute(build_api.CppBuilder, "build", build):
            yield


class _ReusingBuild:
    """The build of one program; it delays compiles that a library may replace."""

    def __init__(
        self, folder: Path, build: Callable[[build_api.CppBuilder], None]
    ) -> None:
        self._folder, self._build = folder, build
        self._by_key = dict(_find_libraries(folder.parent))
        self._delayed: list[build_api.CppBuilder] = []
        self._libraries: set[Path] = set()
        self._has_weights = True

    def build(self, builder: build_api.CppBuilder) -> None:
        command = shlex.split(builder.get_command_line())
        library = self._by_key.get(_safe_key(command, self._folder))
        if library and not _is_link_command(command):
            self._delayed.append(builder)
            self._libraries.add(library)
            Path(builder.get_target_file_path()).touch()  # Inductor removes it later
        elif _is_link_command(command):
            self._link(builder, command)
        else:
            self._note_weights(command)
            self._build(builder)

    def _link(self, builder: build_api.CppBuilder, command: Sequence[str]) -> None:
        delayed, self._delayed = self._delayed, []
        objects = [word for word in command if word.endswith(_OBJECTS)]
        covers_all = len(self._libraries) == 1 and len(delayed) == len(objects)
        if covers_all and not self._has_weights:
            (library,) = self._libraries
            if _link_key(library) == _safe_key(command, self._folder):
                with contextlib.suppress(OSError):
                    shutil.copy(library, builder.get_target_file_path())
                    return
        for other in delayed:
            self._build(other)
        self._build(builder)

    def _note_weights(self, command: Sequence[str]) -> None:
        for word in command:
            if word.endswith(".weights.S"):
                self._has_weights = not _NO_WEIGHTS.search(Path(word).read_text())


_OBJECTS = (".wrapper.o", ".kernel.o")


def _is_link_command(command: Sequence[str]) -> bool:
    return any(word.endswith(_OBJECTS) for word in command) and "-c" not in command


def _find_libraries(server: Path) -> Iterator[tuple[str, Path]]:
    """Yield the key of each compile command, and the library that it is part of."""
    for home in server.glob(f"*{_CACHE_SUFFIX}"):
        for text in home.glob("*/*/*.cpp"):
            compiled, _ = _read_commands(text, home)
            for library in text.parent.glob("*.wrapper.so"):
                if compile_key := _safe_key(compiled, home, _child_folder(home)):
                    yield compile_key, library


def _read_commands(text: Path, home: Path) -> tuple[list[str], list[str]]:
    """Return the compile and link commands in a source, with the paths of today.

    The child that wrote them has another folder, which is gone.
    """
    appended = (
        _APPENDED_COMMANDS.search(text.read_text())
        if text.name.endswith(_TEXTS)
        else None
    )
    if appended is None:
        return [], []
    updated = appended[0].replace(f"{_child_folder(home)}{os.sep}", f"{home}{os.sep}")
    found = _APPENDED_COMMANDS.search(updated)
    assert found is not None
    return shlex.split(found[1]), shlex.split(found[2])


def _child_folder(home: Path) -> Path:
    return home.with_name(home.name.removesuffix(_CACHE_SUFFIX))


def _link_key(library: Path) -> str:
    """Return the key of the command that linked a library."""
    home = library.parents[2]
    _, linked = _read_commands(library.with_suffix(".cpp"), home)
    return _safe_key(linked, home, _child_folder(home))


def _safe_key(command: Sequence[str], *folders: Path) -> str:
    """Return the key of a command; '' if it is empty, or if a source is unreadable."""
    with contextlib.suppress(OSError):
        return key(command, *folders) if command else ""
    return ""


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


# Object files that are compiled once for all children of a server.
#
# g++ makes the same object from the same text and flags, so a child that needs an
# object which another child has compiled takes it, then links, loads and runs it. So
# a repro that is run again in forks, and candidates that differ only in values, are
# compiled once. A failed compile is repeated each time, and a new interpreter
# compiles everything itself.


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
