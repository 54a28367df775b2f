"""Write ``kernel.py``: one generated Triton kernel with the arguments of its launch."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import subprocess
import sys
import traceback
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from shrinkfx.protocol.files import KernelRun, Left
from shrinkfx.worker.explaining.kernel_memory import Memory
from shrinkfx.worker.explaining.kernel_script import Script, compiling, launching
from shrinkfx.worker.interpreter.findings import Report
from shrinkfx.worker.interpreter.launch import WATCHING, Generated

Held = tuple[Generated, Mapping[str, Memory]]
"""A launch, and copies of its tensor arguments as they were before it."""

_TELLING = re.compile(
    r"out-of-bounds \w+ of \d+ bytes|through \w+|declared divisible by 16, is \d+"
    r"|device-side assert(?= in )|(?<=\): )[^:\n]+(?= \[program )"
    r"|out of resource: [\w ]+|NameError\([^)]*\)|CompilationError"
)
"""The parts of a failure's message that a repro of the kernel must reproduce."""

_RUN_S, _INTERPRET = 300.0, "TRITON_INTERPRET"


@dataclass
class _Launches:
    """The last launch, and the last launch of a requested kernel."""

    kernels: Collection[str]
    last: Held | None = None
    asked: Held | None = None

    def watch(self, launch: Generated) -> None:
        """Copy the tensor arguments of a launch."""
        given = launch.arguments.items()
        tensors = {k: v for k, v in given if isinstance(v, torch.Tensor)}
        self.last = launch, Memory.of_all(tensors)
        if launch.name in self.kernels:
            self.asked = self.last


@contextlib.contextmanager
def keeping_launches(home: Path, kernels: Collection[str], arch: str) -> Iterator[None]:
    """Write ``kernel.py`` for the kernel that fails in the block.

    If none fails, it is the last launch of one of ``kernels``.
    """
    seen = _Launches(kernels)
    WATCHING.append(seen.watch)
    try:
        yield
    except Exception as error:
        _leave(home, functools.partial(_failed, seen, error, arch), str(error))
        raise
    else:
        _leave(home, lambda: launching(*seen.asked) if seen.asked else None, "")
    finally:
        WATCHING.remove(seen.watch)


def _failed(seen: _Launches, error: Exception, arch: str) -> Script | None:
    """Return the script of the kernel that failed to compile or to run, or None."""
    if isinstance(error, Report):
        name = error.findings[0].kernel
        is_last = seen.last is not None and seen.last[0].name == name
        return launching(*seen.last) if seen.last and is_last else None
    tuner = _tuner_in(error)
    return compiling(tuner, arch) if tuner is not None and not seen.last else None


def _tuner_in(error: BaseException) -> Any:
    """Return the ``CachingAutotuner`` that was running at the error, or None."""
    cause: BaseException | None = error
    while cause is not None:
        for frame, _ in traceback.walk_tb(cause.__traceback__):
            worker = frame.f_locals.get("self")
            if type(worker).__name__ == "CachingAutotuner":
                return worker
        cause = cause.__cause__ or cause.__context__
    return None


def _leave(home: Path, make: Callable[[], Script | None], message: str) -> None:
    """Write the script, run it, and write how it ended."""
    try:
        if (script := make()) is None:
            return
        if script.data:
            torch.save(script.data, home / Left.KERNEL_DATA)
        (home / Left.KERNEL).write_text(script.text)
        told = _run(home / Left.KERNEL, script, message)
    except Exception as error:  # noqa: BLE001 - the program's failure matters more
        told = KernelRun("", "", said=f"it could not be written: {error}")
    (home / Left.KERNEL_RUN).write_text(told.to_line())


def _run(path: Path, script: Script, message: str) -> KernelRun:
    """Run the script as a user without shrinkfx and without a GPU would."""
    environment = dict(os.environ)
    for name in ("PYTHONPATH", _INTERPRET):
        environment.pop(name, None)
    command = f"python {path.name}"
    if not script.compiles:
        environment[_INTERPRET] = "1"
        command = f"{_INTERPRET}=1 {command}"
    try:
        done = subprocess.run(
            [sys.executable, "-W", "ignore", path.name],
            cwd=path.parent,
            env=environment,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_RUN_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return KernelRun(script.kernel, command, said=str(error))
    said = (done.stderr or done.stdout).strip().rpartition("\n")[2]
    alike = is_alike(message, done.returncode, done.stderr)
    return KernelRun(script.kernel, command, alike, said)


def is_alike(message: str, code: int, said: str) -> bool:
    """Return whether a kernel alone ends as in its program, which raised ``message``.

    A kernel that computes wrong values raises nothing, so an empty message matches exit
    status 0.
    """
    wanted = _TELLING.findall(message)
    if not message:
        return code == 0
    return code != 0 and bool(wanted) and all(word in said for word in wanted)
