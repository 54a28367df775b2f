"""Run a program under AddressSanitizer to get the kernel and line of a memory error."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from shrinkfx.worker.native import find_compiler

FLAGS = "-fsanitize=address -fno-omit-frame-pointer"
"""Flags for compiling kernels, and for linking them into the library."""

WRAPPER = """\
#!/bin/sh
unset LD_PRELOAD
case "$*" in
*.wrapper.cpp*) exec {0} "$@" ;;
esac
exec {0} {1} "$@"
"""
"""A compiler that instruments kernels, but not the wrapper.

The wrapper accesses only the memory that it passes to kernels, and would take three
times as long to compile.
"""

OPTIONS = {"aot_inductor.precompile_headers": False}
"""Inductor options: precompiled headers do not pay off for a single compilation."""

_RUNTIMES = ("libasan.so", "libclang_rt.asan.so", "libclang_rt.asan-x86_64.so")


class CannotSanitize(Exception):
    """AddressSanitizer is not available; the message says what is missing."""


def sanitizer_environment(
    environment: Mapping[str, str], folder: Path
) -> dict[str, str]:
    """Return the environment for a Python that compiles and runs with AddressSanitizer.

    Args:
        environment: the environment to start from.
        folder: the folder to put the compiler wrapper in.

    Raises:
        CannotSanitize: the compiler or its run-time library is missing.
    """
    compiler = find_compiler(environment.get("CXX", "g++"))
    if compiler is None:
        raise CannotSanitize("no C++ compiler found")
    runtime = _runtime(compiler)
    # Inductor recognizes the kind of a compiler by its name.
    wrapper = folder / Path(compiler).name
    wrapper.write_text(WRAPPER.format(compiler, FLAGS))
    wrapper.chmod(0o755)
    return {
        **environment,
        "CXX": str(wrapper),
        # Inductor's probe fails under the wrapper; kernels would not be vectorized.
        "TORCHINDUCTOR_VEC_ISA_OK": "1",
        # Python's faulthandler would handle the faults that AddressSanitizer explains.
        # Allocation stacks are not read; recording them took a third of the import.
        "ASAN_OPTIONS": "detect_leaks=0:redzone=512:handle_segv=2"
        ":malloc_context_size=2",
        "LD_PRELOAD": runtime,
    }


def _runtime(compiler: str) -> str:
    """Return the path of the run-time library, which must be loaded first."""
    for name in _RUNTIMES:
        command = [compiler, f"-print-file-name={name}"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=20)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise CannotSanitize(f"{compiler}: {error}") from error
        path = done.stdout.strip()
        if os.path.isabs(path) and Path(path).exists():
            return os.path.realpath(path)
    raise CannotSanitize(f"{Path(compiler).name} has no libasan")
