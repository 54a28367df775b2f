"""Run one program under AddressSanitizer, for the kernel and line of a memory error."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from shrinkfx.worker.native import find_compiler

FLAGS = "-fsanitize=address -fno-omit-frame-pointer"
"""For what is to be checked: kernels, and the library that they are linked into."""

WRAPPER = """\
#!/bin/sh
unset LD_PRELOAD
case "$*" in
*.wrapper.cpp*) exec {0} "$@" ;;
esac
exec {0} {1} "$@"
"""
"""A compiler that instruments kernels; it is not to be instrumented itself.

The wrapper reads and writes nothing but what it hands to them, and would take three
times as long to compile.
"""

OPTIONS = {"aot_inductor.precompile_headers": False}
"""For Inductor: what is compiled once has no use for headers that are."""

_RUNTIMES = ("libasan.so", "libclang_rt.asan.so", "libclang_rt.asan-x86_64.so")


class CannotSanitize(Exception):
    """There is no AddressSanitizer here; says what is missing."""


def environment_with(environment: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Add what a new Python needs to compile and run under AddressSanitizer.

    Args:
        folder: where to put the compiler that it uses.

    Raises:
        CannotSanitize: the compiler or its run-time library is missing.
    """
    compiler = find_compiler(environment.get("CXX", "g++"))
    if compiler is None:
        raise CannotSanitize("no C++ compiler found")
    runtime = _runtime(compiler)
    # Inductor tells the kind of a compiler by its name.
    wrapper = folder / Path(compiler).name
    wrapper.write_text(WRAPPER.format(compiler, FLAGS))
    wrapper.chmod(0o755)
    return {
        **environment,
        "CXX": str(wrapper),
        # Its own probe fails under the wrapper, and kernels would not be vectorised.
        "TORCHINDUCTOR_VEC_ISA_OK": "1",
        # Python's faulthandler would take the faults that it is to explain.
        # Who has asked for memory is not read; to note it took an import's third.
        "ASAN_OPTIONS": "detect_leaks=0:redzone=512:handle_segv=2"
        ":malloc_context_size=2",
        "LD_PRELOAD": runtime,
    }


def _runtime(compiler: str) -> str:
    """Find the library that must be loaded before all others."""
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
