"""Small libraries of ours: compiled on first use, once for all runs of a user."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from shrinkfx.worker import build_cache


class CannotBuild(Exception):
    """There is no library; says why."""


def build(source: Path, flags: Sequence[str], *included: Path) -> Path:
    """Compile a source into a shared library, with Inductor's compiler.

    Args:
        included: what else the library is made of.

    Raises:
        CannotBuild: it cannot be compiled or kept.
    """
    compiler = shutil.which(os.environ.get("CXX", "g++"))
    if compiler is None:
        raise CannotBuild("no C++ compiler found")
    try:
        folder = build_cache.folder()
        folder.mkdir(parents=True, exist_ok=True)
        made_of = b"".join(part.read_bytes() for part in (source, *included))
        key = f"{build_cache.identity(compiler)} {flags}".encode()
        digest = hashlib.sha256(made_of + key).hexdigest()[:16]
        library = folder / f"{source.stem}-{digest}.so"
        if not library.exists():
            build_cache.forget_old()
            _compile(compiler, source, flags, library)
        build_cache.note_use(library)
    except (OSError, RuntimeError, subprocess.SubprocessError) as error:
        raise CannotBuild(f"{type(error).__name__}: {error}") from error
    return library


def _compile(compiler: str, source: Path, flags: Sequence[str], library: Path) -> None:
    """Put the library in place at once: another run may be looking for it."""
    with tempfile.TemporaryDirectory(dir=library.parent) as folder:
        draft = Path(folder) / library.name
        command = [compiler, *flags, str(source), "-o", str(draft), "-ldl"]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=120, check=False
        )
        if done.returncode:
            raise CannotBuild(f"{compiler} fails: {done.stderr[-500:].strip()}")
        draft.rename(library)
