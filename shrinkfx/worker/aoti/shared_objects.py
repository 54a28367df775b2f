"""Objects of the same text, compiled once for all scripts that are run in forks.

A repro is run again to see whether it fails each time. That g++ makes the same of the
same text and flags need not be seen: a second fork that comes to what was compiled
takes the object, and links, loads and runs it. What does not compile is tried each
time, and a new interpreter compiles all of its own.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shlex
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from torch._inductor.cpp_builder import CppBuilder

from shrinkfx.worker.aoti.instead import instead

_OBJECTS = (".wrapper.o", ".kernel.o")


@contextlib.contextmanager
def shared_objects(folder: Path) -> Iterator[None]:
    """Share what AOTInductor compiles with other children of the server.

    Args:
        folder: this child's, in that of the server. Where a command or a text names it,
            that of another child names its own.
    """
    stock: Callable[[CppBuilder], None] = CppBuilder.build

    def build(builder: CppBuilder) -> None:
        target = Path(builder.get_target_file_path())
        if not target.name.endswith(_OBJECTS):
            stock(builder)
            return
        command = shlex.split(builder.get_command_line())
        with contextlib.suppress(OSError):  # it is not there, or the disk is full
            name = f"object-{key(command, folder)}"
            shutil.copyfile(folder.parent / name, target)
            return
        stock(builder)
        with contextlib.suppress(OSError):
            _leave(target, folder.parent / f"object-{key(command, folder)}")

    with instead(CppBuilder, "build", build):
        yield


def _leave(made: Path, place: Path) -> None:
    """Leave all of it or nothing: the child may be killed."""
    draft = place.with_suffix(f".{os.getpid()}")
    shutil.copyfile(made, draft)
    draft.replace(place)


def key(command: Sequence[str], folder: Path) -> str:
    """Tell apart what is compiled of other texts, or with other flags.

    Raises:
        OSError: a text cannot be read.
    """
    own, found = os.fsencode(folder), hashlib.sha256()
    for word in command:
        found.update(os.fsencode(word).replace(own, b"") + b"\0")
        if word.endswith(".cpp"):
            text = Path(word).read_bytes().replace(own, b"")
            found.update(_REMARKS.sub(b"", text) + b"\0")
    return found.hexdigest()[:24]


_REMARKS = re.compile(rb"(\n|\n//[^\n]*)*\Z")
"""At the end, where AOTInductor adds how a text was compiled, each time that it is."""
