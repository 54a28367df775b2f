"""Instruction sets that vector code may use, asked for once for all runs of a user.

Inductor compiles a few lines for each, and has a new Python load what comes of it: 1.5
CPU-seconds for every process that asks, though those lines are compiled but once.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import torch

from shrinkfx.worker import build_cache, native
from shrinkfx.worker.aoti.instead import instead
from shrinkfx.worker.private_api import build_api
from shrinkfx.worker.private_api.inductor_api import get_cpp_compiler

_OF_A_CPU = ("vendor", "model", "flags", "Features", "features", "CPU", "cpu\t")
"""How lines of ``/proc/cpuinfo`` begin that tell one kind from another."""

_PATHS = ("PATH", "CPATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH")
"""Variables by which a compiler finds something else; and all those of the loader."""


@contextlib.contextmanager
def asked_once() -> Iterator[None]:
    """Have Inductor not ask again whether it can use a set that it could use.

    Nothing else is remembered: what failed may have failed for the moment.
    """
    if build_api.FEATURE.missing:
        yield
        return
    ask = build_api.VecISA.check_build

    def check_build(isa: build_api.VecISA, code: str) -> bool:
        note = _note(isa, code)
        if note and note.exists():
            build_cache.note_use(note)
            return True
        can = bool(ask(isa, code))
        if can and note:
            with contextlib.suppress(OSError):
                note.parent.mkdir(parents=True, exist_ok=True)
                note.touch()
        return can

    with instead(build_api.VecISA, "check_build", check_build):
        yield


def _note(isa: build_api.VecISA, code: str) -> Path | None:
    """Name the file that says yes; None where it is not clear who would say so."""
    try:
        made_of = repr((code, isa.build_arch_flags(), isa.build_macro(), _machine()))
    except (OSError, RuntimeError, AttributeError):  # no compiler: stock says it best
        return None
    digest = hashlib.sha256(made_of.encode()).hexdigest()[:24]
    return build_cache.folder() / f"instruction-set-{digest}"


def _machine() -> tuple[object, ...]:
    """Tell CPU, compiler and PyTorch from any others."""
    compiler = get_cpp_compiler()
    lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    variables = sorted(
        (name, value)
        for name, value in os.environ.items()
        if name in _PATHS or name.startswith("LD_")
    )
    libtorch = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
    return (
        sorted({line for line in lines if line.startswith(_OF_A_CPU)}),
        compiler,
        build_cache.identity(native.find_compiler(compiler) or compiler),
        build_api.get_compiler_version_info(compiler),
        torch.__version__,
        build_cache.identity(str(libtorch)),
        variables,
    )
