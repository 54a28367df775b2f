"""A store of compiled object files, by source text, flags and compiler.

The store's own ``g++`` is for scripts that run several times, each in a new
interpreter. Each of these processes must have its own memory layout, but not its own
compilation, because g++ makes the same object from the same text. So the first process
compiles everything; the others take its objects, and link, load and run them. The same
holds for the small libraries by which Inductor tests instruction sets. The script's
process is not changed: this ``g++`` is found in its ``PATH``.

Imports no torch, so that this ``g++`` starts quickly.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
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
        others: names of stores to take objects from, but not to add objects to.
    """

    folder: Path | None
    name: str = "object"
    others: Sequence[str] = ()

    def copy_stored_object(self, command: Sequence[str]) -> bool:
        """Copy the object that another child has compiled with the same command.

        Returns:
            Whether there was one.
        """
        for name in (self.name, *self.others):
            with contextlib.suppress(OSError):  # there is none, or the disk is full
                place = self._place(name, command)
                shutil.copyfile(place, _output_of(command))
                os.utime(place)
                return True
        return False

    def store_object(self, command: Sequence[str]) -> None:
        """Store a command's output in one step, because the child may be killed."""
        with contextlib.suppress(OSError):
            place = self._place(self.name, command)
            draft = place.with_suffix(f".{os.getpid()}")
            shutil.copyfile(_output_of(command), draft)
            draft.replace(place)
            objects = sorted(place.parent.glob(f"{self.name}-*"), key=_last_used)
            for old in objects[:-MOST]:
                old.unlink(missing_ok=True)

    def _place(self, name: str, command: Sequence[str]) -> Path:
        if self.folder is None:
            raise FileNotFoundError("no other child is to have it")
        return self.folder.parent / f"{name}-{_key(command, self.folder)}"


NOT_SHARED = SharedObjects(None)

OF_INTERPRETERS = "of-interpreters"
"""The store of new interpreters, which take no objects of forks."""


def _output_of(command: Sequence[str]) -> str:
    return command[command.index("-o") + 1]


def _last_used(path: Path) -> float:
    with contextlib.suppress(OSError):  # another child has just removed it
        return path.stat().st_mtime
    return 0.0


def _key(command: Sequence[str], folder: Path) -> str:
    """Return a key of the command, the source texts and the compiler.

    The name of a kernel's file is a hash of its text, which names a header in the
    child's folder, so such names do not count.

    Args:
        folder: the folder of the child, which does not count either.

    Raises:
        OSError: a source file cannot be read.
    """
    digest = hashlib.sha256()
    names = [os.fsencode(Path(word).name) for word in command if word.endswith(_NAMED)]

    def normalize(text: bytes) -> bytes:
        text = remove_header_folder(text.replace(os.fsencode(folder), b""))
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


def remove_header_folder(text: bytes) -> bytes:
    """Remove the folder of precompiled headers from a command or a source text.

    Each server finds this folder by a link of its own; the name of a header is a hash
    of its source.
    """
    return _HEADERS.sub(b"", text)


_REMARKS = re.compile(rb"(\n|\n//[^\n]*)*\Z")
"""The comments at the end, where AOTInductor appends the commands at each compile."""


_COMPILER = "g++"
"""What Inductor calls on Linux if ``CXX`` is not set."""

_WRAPPER = """#!/bin/sh
PATH={path}
case " $* " in
*.cpp" "*" -o "*) exec {ours} g++ "$@" ;;
esac
exec g++ "$@"  # by this name, because Inductor hashes what "g++ -v" prints
"""


def path_with_compiler(folder: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """Put this compiler first on the PATH of a script.

    Args:
        folder: the folder of this child, in the server's folder.
        environment: the script's. If it sets a compiler, that one is used.

    Returns:
        Environment variables.
    """
    path = environment.get("PATH", os.defpath)
    if "CXX" in environment or shutil.which(_COMPILER, path=path) is None:
        return {}
    root = str(Path(__file__).resolve().parents[3])
    start = f"import sys; sys.path.insert(0, {root!r}); "
    start += f"from {__name__} import main; main()"
    ours = [sys.executable, "-I", "-S", "-c", start, str(folder)]
    wrapper = folder / "bin" / _COMPILER
    wrapper.parent.mkdir()
    text = _WRAPPER.format(path=shlex.quote(path), ours=shlex.join(ours))
    wrapper.write_text(text)
    wrapper.chmod(0o755)
    return {"PATH": f"{wrapper.parent}{os.pathsep}{path}"}


def main() -> None:
    """Compile, or take what another interpreter has compiled from the same text."""
    folder, *command = sys.argv[1:]
    shared = SharedObjects(Path(folder), OF_INTERPRETERS)
    if shared.copy_stored_object(command):
        return
    if code := subprocess.run(command).returncode:
        sys.exit(code)
    shared.store_object(command)
