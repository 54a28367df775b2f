"""Operators in C++ that a script compiles, compiled once for the children of a server.

PyTorch's headers make that dear: 12 CPU-seconds for a small operator, 28 with those
that ``load_inline`` adds (docs/decisions.md). A child that comes to the texts and flags
of another takes its library, and loads it; a new interpreter compiles all of its own.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from shrinkfx.worker.aoti.instead import instead

_BUILDER = "cpp_extension"

_SOURCES = re.compile(r"^build \S+: \w*compile (.+)$", re.MULTILINE)
"""What ninja is told to compile, a line each."""

_OWN_HEADERS = re.compile(r"(^|\s)-(I|include|imacros|iquote|idirafter)", re.MULTILINE)
"""A flag by which a text may include others that nobody has looked at."""


@contextlib.contextmanager
def shared_extensions(folder: Path, script: Path) -> Iterator[None]:
    """Share what ``torch.utils.cpp_extension`` compiles with a server's children.

    Args:
        folder: this child's, in that of the server; the script's home is in it.
        script: what is run. If it does not name that module, nothing is shared: to
            import it takes long.
    """
    if _BUILDER not in script.read_text(encoding="utf-8"):
        yield
        return
    from torch.utils import cpp_extension

    compile_all = cpp_extension._run_ninja_build

    def build(build_directory: str, *args: Any, **kwargs: Any) -> None:
        made = Path(build_directory)
        place = _place(made, folder)
        if place is None:
            compile_all(build_directory, *args, **kwargs)
        elif not _take(place, made):
            compile_all(build_directory, *args, **kwargs)
            _leave(made, place)

    with instead(cpp_extension, "_run_ninja_build", build):
        yield


def _take(place: Path, made: Path) -> bool:
    with contextlib.suppress(OSError):  # it is not there, or the disk is full
        for library in place.iterdir():
            shutil.copyfile(library, made / library.name)
        return True
    return False


def _leave(made: Path, place: Path) -> None:
    """Leave all of it or nothing: the child may be killed."""
    draft = place.with_suffix(f".{os.getpid()}")
    with contextlib.suppress(OSError):  # another child was faster, or the disk is full
        draft.mkdir()
        for library in made.glob("*.so"):
            shutil.copyfile(library, draft / library.name)
        draft.rename(place)
    shutil.rmtree(draft, ignore_errors=True)


def _place(made: Path, folder: Path) -> Path | None:
    """Say where a library lies, by what it is made of; None where that is unsure."""
    with contextlib.suppress(OSError):
        told = (made / "build.ninja").read_text(encoding="utf-8")
        sources = [Path(name) for name in _SOURCES.findall(told)]
        if not sources or _OWN_HEADERS.search(told):
            return None
        found = hashlib.sha256(told.replace(str(folder), "").encode())
        for source in sources:
            if source.parent != made:
                return None
            found.update(b"\0" + source.read_bytes())
        return folder.parent / f"extension-{found.hexdigest()[:24]}"
    return None
