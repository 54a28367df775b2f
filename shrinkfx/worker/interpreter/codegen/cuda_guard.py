"""A CUDA device guard that does nothing, for a torch that was built without CUDA.

Such a torch has no guard for the device type, and AOTAutograd aborts the process where
it needs one. Three lines of C++ register a no-op guard.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import shlex
import subprocess
import tempfile
from pathlib import Path

import torch

from shrinkfx.worker import build_cache

_SOURCE = """
#include <c10/core/impl/DeviceGuardImplInterface.h>
using c10::DeviceType;
static c10::impl::DeviceGuardImplRegistrar registered(
    DeviceType::CUDA, new c10::impl::NoOpDeviceGuardImpl<DeviceType::CUDA>());
"""
_TIMEOUT_S = 300.0


class NoGuard(RuntimeError):
    """The guard could not be built; the message contains the compiler's output."""


@functools.cache
def register_guard() -> None:
    """Register a CUDA device guard in this process, unless torch has one.

    Raises:
        NoGuard: the guard could not be built.
    """
    if torch.version.cuda is None:
        ctypes.CDLL(str(_find_or_build()), mode=ctypes.RTLD_GLOBAL)


def _find_or_build() -> Path:
    """Return the guard's library: build it, or reuse that of an earlier run."""
    from shrinkfx.worker.private_api.inductor_api import get_cpp_compiler

    compiler = get_cpp_compiler()
    identity = f"{torch.__version__} {torch.__file__} {compiler} {_SOURCE}"
    digest = hashlib.sha256(identity.encode()).hexdigest()[:16]
    library = build_cache.folder() / f"cuda-guard-{digest}.so"
    if not library.exists():
        build_cache.forget_old()
        library.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=library.parent) as folder:
            # Renamed when complete, because another process may build it, too.
            _build(compiler, Path(folder)).rename(library)
    build_cache.note_use(library)
    return library


def _build(compiler: str, folder: Path) -> Path:
    from torch.utils.cpp_extension import include_paths, library_paths

    source, built = folder / "guard.cpp", folder / "guard.so"
    source.write_text(_SOURCE)
    abi = f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}"
    command = [*shlex.split(compiler), "-std=c++20", "-O1", "-shared", "-fPIC", abi]
    command += [f"-I{path}" for path in include_paths()]
    command += [str(source), "-o", str(built)]
    command += [f"-L{path}" for path in library_paths()] + ["-lc10"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_TIMEOUT_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoGuard(f"cannot build a CUDA device guard: {error}") from error
    if done.returncode:
        raise NoGuard(f"cannot build a CUDA device guard:\n{done.stderr[-2000:]}")
    return built
