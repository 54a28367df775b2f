"""Have tensors lie against inaccessible memory: ``guard_pages.c``, built and loaded.

Run as a program it becomes a worker with that library preloaded. The library takes
itself out of the environment, so compilers run without it.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from shrinkfx.program.messages import Guard
from shrinkfx.worker import cache

LIBRARY = "SHRINKFX_GUARD_LIBRARY"
"""Names the library in the processes that have it."""

_SIDE = "SHRINKFX_GUARD_PAGES"
_WHY_NOT = "SHRINKFX_NO_GUARD_PAGES"
_SOURCE = Path(__file__).with_suffix(".c")
_PARTS = (_SOURCE, _SOURCE.with_name("guard_faults.h"))
_FLAGS = ("-x", "c", "-O2", "-fPIC", "-shared", "-pthread")
_PAGE_BYTES = 4096


class CannotGuard(Exception):
    """There is no library to preload; says why."""


def build() -> Path:
    """Compile the library with Inductor's compiler, once for all runs of a user.

    Raises:
        CannotGuard: it cannot be compiled or kept.
    """
    compiler = shutil.which(os.environ.get("CXX", "g++"))
    if compiler is None:
        raise CannotGuard("no C++ compiler found")
    try:
        folder = cache.folder()
        folder.mkdir(parents=True, exist_ok=True)
        library = folder / f"guard_pages-{_digest(compiler)}.so"
        if not library.exists():
            cache.forget_old()
            _compile(compiler, library)
        cache.note_use(library)
    except (OSError, RuntimeError, subprocess.SubprocessError) as error:
        raise CannotGuard(f"{type(error).__name__}: {error}") from error
    return library


def _digest(compiler: str) -> str:
    """Tell apart what the source and the compiler make."""
    key = f"{cache.identity(compiler)} {_FLAGS}"
    sources = b"".join(part.read_bytes() for part in _PARTS)
    return hashlib.sha256(sources + key.encode()).hexdigest()[:16]


def _compile(compiler: str, library: Path) -> None:
    """Put the library in place at once: another run may be looking for it."""
    with tempfile.TemporaryDirectory(dir=library.parent) as folder:
        draft = Path(folder) / library.name
        command = [compiler, *_FLAGS, str(_SOURCE), "-o", str(draft), "-ldl"]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=120, check=False
        )
        if done.returncode:
            raise CannotGuard(f"{compiler} fails: {done.stderr[-500:].strip()}")
        draft.rename(library)


def environment_with(
    environment: Mapping[str, str], library: str, side: str = Guard.OFF
) -> dict[str, str]:
    """Add what a new program needs to start with guard pages."""
    others = environment.get("LD_PRELOAD", "")
    loaded = ":".join(filter(None, [library, others]))
    return {**environment, "LD_PRELOAD": loaded, LIBRARY: library, _SIDE: side}


def switch(side: str) -> None:
    """Choose what new tensors lie against; only a server with guard pages can."""
    if side == Guard.OFF and LIBRARY not in os.environ:
        return
    if not ctypes.CDLL(None).shrinkfx_guard(list(Guard).index(Guard(side))):
        raise RuntimeError("there are no addresses left for guard pages")


def why_not() -> str:
    """Try it on a tensor of this process: '' where it works, or was not asked for."""
    if LIBRARY not in os.environ:
        return os.environ.get(_WHY_NOT, "")
    import torch

    try:
        switch(Guard.AFTER)
        tensor = torch.empty(25, dtype=torch.uint8)
        switch(Guard.OFF)
    except (AttributeError, RuntimeError) as error:
        return str(error)
    ends = (tensor.data_ptr() + 25) % _PAGE_BYTES == 0
    return "" if ends else "this PyTorch allocates its tensors in another way"


def main() -> None:
    """Become a worker: with guard pages, or with the reason why there are none."""
    environment = dict(os.environ)
    try:
        environment = environment_with(environment, str(build()))
    except CannotGuard as error:
        environment[_WHY_NOT] = str(error)
    worker = [sys.executable, "-m", "shrinkfx.worker.main", *sys.argv[1:]]
    os.execve(sys.executable, worker, environment)


if __name__ == "__main__":
    main()
