"""Build and install ``red_zones.cu``, which places CUDA tensors between red zones.

The library is PyTorch's CUDA allocator in a child that asks for it. This depends on
private behaviour of PyTorch, read in 2.11 and 2.13: an allocator can be changed only
before CUDA is initialized (``changeCurrentAllocator`` in
torch/csrc/cuda/CUDAPluggableAllocator.cpp), it has no statistics, and autotuning works
without these (``copy_args_to_cpu_if_needed`` in
torch/_inductor/runtime/triton_heuristics.py).
"""

from __future__ import annotations

import ctypes
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from shrinkfx.protocol.choices import Guard
from shrinkfx.worker import native
from shrinkfx.worker.cuda_memory import first

LIBRARY = "SHRINKFX_ZONES_LIBRARY"
"""The variable with the library's path in the children of a server that built it."""

_HERE = Path(__file__).parent
_INCLUDED = tuple(_HERE / name for name in ("zones.h", "entries.h", "launches.h"))
_FLAGS = ("-shared", "-Xcompiler", "-fPIC", "-O2", "-std=c++17", "-arch=all-major")
_COMPILE_S = 600.0
_MOST_CHARACTERS = 4096


class ZoneOverwritten(RuntimeError):
    """The program has overwritten the poison in a red zone."""


def build() -> Path:
    """Compile the library, once for all runs of a user.

    Returns:
        The path of the library.

    Raises:
        CannotBuild: there is no nvcc, or it fails.
    """
    nvcc = shutil.which("nvcc", path=_path())
    if nvcc is None:
        reason = "nvcc is not on the PATH nor in $CUDA_HOME/bin: install CUDA's toolkit"
        raise native.CannotBuild(reason)
    source = _HERE / "red_zones.cu"
    return native.build(source, _FLAGS, *_INCLUDED, compiler=nvcc, timeout_s=_COMPILE_S)


def _path() -> str:
    home = os.environ.get("CUDA_HOME") or "/usr/local/cuda"
    return os.pathsep.join([os.environ.get("PATH", ""), f"{home}/bin"])


def prepare() -> str:
    """Build the library for the children of this process; return why not, or ''."""
    try:
        os.environ[LIBRARY] = str(build())
    except native.CannotBuild as error:
        return f"red zones cannot be built: {error}"
    return ""


_zones: ctypes.CDLL | None = None


def install_red_zones(side: Guard, *, loud: bool = False) -> None:
    """Install the allocator with red zones in this process, if a side is requested.

    CUDA must not have been used yet. A process cannot remove the allocator again.

    Args:
        side: the side of tensors with inaccessible pages.
        loud: end the process if a zone is overwritten, for users' scripts.
    """
    global _zones
    requested = side.has_pages and LIBRARY in os.environ
    if requested and _zones is None:
        number = list(Guard).index(side)
        _zones = first.install(os.environ[LIBRARY], number, loud=loud)


def script_with_red_zones(script: str, side: Guard) -> list[str]:
    """Return the arguments with which Python runs a script with red zones."""
    if LIBRARY not in os.environ or side.is_sanitizer:
        return [script]
    number = list(Guard).index(side)
    return [str(first.__file__), os.environ[LIBRARY], str(number), script]


def check_zones(when: str) -> None:
    """Raise if a zone was overwritten.

    Args:
        when: what has run, for the message.

    Raises:
        ZoneOverwritten: says next to which tensor, and how far away.
    """
    if _zones is not None:
        _zones.shrinkfx_zones_look()
        _raise_findings(_findings(_zones), when)


def check_zones_after_calls(compiled: Callable[..., Any]) -> Callable[..., Any]:
    """Return the compiled program with a check of all zones after each call."""
    return compiled if _zones is None else ZoneCheckedProgram(_zones, compiled)


class ZoneCheckedProgram:
    """A compiled program that raises if a call overwrites a zone.

    It then calls the program once more and checks the zones around each launch, which
    identifies the kernel.
    """

    def __init__(self, zones: ctypes.CDLL, compiled: Callable[..., Any]) -> None:
        self._zones = zones
        self._compiled = compiled

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        result = self._compiled(*args, **kwargs)
        self._zones.shrinkfx_zones_look()
        if findings := _findings(self._zones):
            _raise_findings(self._at_launches(*args, **kwargs) or findings, "")
        return result

    def _at_launches(self, *args: Any, **kwargs: Any) -> list[str]:
        self._zones.shrinkfx_zones_watch(1)
        try:
            self._compiled(*args, **kwargs)
        except Exception as error:  # noqa: BLE001 - that it spoils a zone is known
            print(f"red zones: called once more, it raised {error}", flush=True)
        finally:
            self._zones.shrinkfx_zones_watch(0)
        self._zones.shrinkfx_zones_look()
        return _findings(self._zones)


def _findings(zones: ctypes.CDLL) -> list[str]:
    text = ctypes.create_string_buffer(_MOST_CHARACTERS)
    zones.shrinkfx_zones_findings(text, ctypes.c_size_t(_MOST_CHARACTERS))
    return text.value.decode(errors="replace").splitlines()


def _raise_findings(texts: list[str], when: str) -> None:
    if not texts:
        return
    more = f"; and {len(texts) - 1} more" if texts[1:] else ""
    raise ZoneOverwritten(f"red zones: illegal memory access{when}: {texts[0]}{more}")


def log_zone_protection() -> None:
    """Log what protects the tensors of this process."""
    if _zones is not None:
        first.log_protection(_zones)
