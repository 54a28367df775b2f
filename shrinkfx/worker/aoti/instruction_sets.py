"""Find the usable vector instruction sets once for all runs of a user.

Inductor compiles a few lines for each instruction set, and loads the result in a new
Python process: 1.5 CPU-seconds for every process, though it compiles them only once.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import torch

from shrinkfx.worker import build_cache, native
from shrinkfx.worker.aoti.patching import replace_attribute
from shrinkfx.worker.private_api import build_api
from shrinkfx.worker.private_api.inductor_api import get_cpp_compiler

_CPU_LINES = ("vendor", "model", "flags", "Features", "features", "CPU", "cpu\t")
"""Prefixes of the lines of ``/proc/cpuinfo`` that identify a kind of CPU."""

_PATHS = ("PATH", "CPATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH")
"""Variables with search paths of compilers; those of the loader count, too."""


@contextlib.contextmanager
def cache_instruction_sets() -> Iterator[None]:
    """Cache in files which instruction sets Inductor can use.

    Only successes are stored, because a failure may be temporary.
    """
    if build_api.FEATURE.missing:
        yield
        return
    original = build_api.VecISA.check_build

    def check_build(isa: build_api.VecISA, code: str) -> bool:
        note = _note(isa, code)
        if note and note.exists():
            build_cache.note_use(note)
            return True
        usable = bool(original(isa, code))
        if usable and note:
            with contextlib.suppress(OSError):
                note.parent.mkdir(parents=True, exist_ok=True)
                note.touch()
        return usable

    with replace_attribute(build_api.VecISA, "check_build", check_build):
        yield


def _note(isa: build_api.VecISA, code: str) -> Path | None:
    """Return the file that records a success; None if the machine is not known."""
    try:
        identity = repr((code, isa.build_arch_flags(), isa.build_macro(), _machine()))
    except (OSError, RuntimeError, AttributeError):  # no compiler: Inductor reports it
        return None
    digest = hashlib.sha256(identity.encode()).hexdigest()[:24]
    return build_cache.folder() / f"instruction-set-{digest}"


def _machine() -> tuple[object, ...]:
    """Return values that identify the CPU, the compiler and PyTorch."""
    compiler = get_cpp_compiler()
    lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    variables = sorted(
        (name, value)
        for name, value in os.environ.items()
        if name in _PATHS or name.startswith("LD_")
    )
    libtorch = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
    return (
        sorted({line for line in lines if line.startswith(_CPU_LINES)}),
        compiler,
        build_cache.identity(native.find_compiler(compiler) or compiler),
        build_api.get_compiler_version_info(compiler),
        torch.__version__,
        build_cache.identity(str(libtorch)),
        variables,
    )
