"""Object files that are compiled once for all children of a server.

g++ makes the same object from the same text and flags, so a child that needs an object
which another child has compiled takes it, then links, loads and runs it. So a repro
that is run again in forks, and candidates that differ only in values, are compiled
once. A failed compile is repeated each time, and a new interpreter compiles everything
itself.
"""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

from shrinkfx.worker.aoti.object_store import SharedObjects
from shrinkfx.worker.aoti.patching import replace_attribute
from shrinkfx.worker.private_api import build_api

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
