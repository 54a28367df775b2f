"""Objects of the same text, compiled once for the children of a server.

That g++ makes the same of the same text and flags need not be seen twice: a child that
comes to what was compiled takes the object, and links, loads and runs it. So a repro is
run again in forks to see whether it fails each time, and candidates that differ in
values alone are compiled once. What does not compile is tried each time, and a new
interpreter compiles all of its own.
"""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

from shrinkfx.worker.aoti.instead import instead
from shrinkfx.worker.aoti.object_store import SharedObjects
from shrinkfx.worker.private_api import build_api

_OBJECTS = (".wrapper.o", ".kernel.o")


def nothing_taken() -> contextlib.AbstractContextManager[None]:
    """Have a child compile all of its own, so that it names its own files."""
    return instead(SharedObjects, "take", lambda shared, command: False)


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
