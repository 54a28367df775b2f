"""Compile small native libraries on first use, once for all runs of a user."""

from __future__ import annotations

import errno
import hashlib
import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from shrinkfx.worker import build_cache


class CannotBuild(Exception):
    """The library cannot be built; the message says why."""


def find_compiler(command: str) -> str | None:
    """Return the path of the compiler in a command such as ``ccache g++ -m64``."""
    words = [word for word in shlex.split(command) if not word.startswith("-")]
    return shutil.which(words[-1]) if words else None


def build(
    source: Path,
    flags: Sequence[str],
    *included: Path,
    compiler: str | None = None,
    timeout_s: float = 120.0,
) -> Path:
    """Compile a source file into a shared library in the user's cache.

    Args:
        included: other files that the library is built from.
        compiler: the path of the compiler; None takes the one that Inductor uses.

    Returns:
        The path of the library.

    Raises:
        CannotBuild: the library cannot be compiled or stored.
    """
    compiler = compiler or find_compiler(os.environ.get("CXX", "g++"))
    if compiler is None:
        raise CannotBuild("no C++ compiler found")
    try:
        folder = build_cache.folder()
        folder.mkdir(parents=True, exist_ok=True)
        content = b"".join(part.read_bytes() for part in (source, *included))
        key = f"{build_cache.identity(compiler)} {flags}".encode()
        digest = hashlib.sha256(content + key).hexdigest()[:16]
        library = folder / f"{source.stem}-{digest}.so"
        if not library.exists():
            build_cache.forget_old()
            _compile([compiler, *flags, str(source)], library, timeout_s)
        build_cache.note_use(library)
    except (OSError, RuntimeError, subprocess.SubprocessError) as error:
        raise CannotBuild(
            _hide_full_disk(f"{type(error).__name__}: {error}")
        ) from error
    return library


def _hide_full_disk(text: str) -> str:
    """Replace the system's message for a full disk by another one.

    The message gets into the log of a check. In the system's words, the check would be
    classified as one without disk space, but the check writes to another disk.
    """
    return text.replace(os.strerror(errno.ENOSPC), "the disk of the cache is full")


def _compile(command: Sequence[str], library: Path, timeout_s: float) -> None:
    """Compile into a temporary folder, then move the library into place in one step.

    Another run may look for the library at the same time.
    """
    with tempfile.TemporaryDirectory(dir=library.parent) as folder:
        draft = Path(folder) / library.name
        result = subprocess.run(
            [*command, "-o", str(draft), "-ldl"],
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        if result.returncode:
            message = _hide_full_disk(result.stderr[-500:].strip())
            raise CannotBuild(f"{command[0]} fails: {message}")
        draft.rename(library)
