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

from shrinkfx.protocol.files import ArtifactFile, KernelRun
from shrinkfx.worker.explaining.kernel_memory import ArgumentMemory
from shrinkfx.worker.explaining.kernel_script import (
    KernelScript,
    write_compile_script,
    write_launch_script,
)
from shrinkfx.worker.interpreter.findings import Report
from shrinkfx.worker.interpreter.launch import LAUNCH_OBSERVERS, GeneratedLaunch

CopiedLaunch = tuple[GeneratedLaunch, Mapping[str, ArgumentMemory]]
"""A launch, and copies of its tensor arguments as they were before it."""

_KEY_PHRASES = re.compile(
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
    last: CopiedLaunch | None = None
    requested: CopiedLaunch | None = None

    def watch(self, launch: GeneratedLaunch) -> None:
        """Copy the tensor arguments of a launch."""
        items = launch.arguments.items()
        tensors = {k: v for k, v in items if isinstance(v, torch.Tensor)}
        self.last = launch, ArgumentMemory.copy_arguments(tensors)
        if launch.name in self.kernels:
            self.requested = self.last


@contextlib.contextmanager
def keep_failing_kernel(
    home: Path, kernels: Collection[str], arch: str
) -> Iterator[None]:
    """Write ``kernel.py`` for the kernel that fails in the block.

    If none fails, it is the last launch of one of ``kernels``.
    """
    seen = _Launches(kernels)
    LAUNCH_OBSERVERS.append(seen.watch)
    try:
        yield
    except Exception as error:
        _write_and_run(
            home, functools.partial(_make_failure_script, seen, error, arch), str(error)
        )
        raise
    else:
        _write_and_run(
            home,
            lambda: write_launch_script(*seen.requested) if seen.requested else None,
            "",
        )
    finally:
        LAUNCH_OBSERVERS.remove(seen.watch)


def _make_failure_script(
    seen: _Launches, error: Exception, arch: str
) -> KernelScript | None:
    """Return the script of the kernel that failed to compile or to run, or None."""
    if isinstance(error, Report):
        name = error.findings[0].kernel
        is_last = seen.last is not None and seen.last[0].name == name
        return write_launch_script(*seen.last) if seen.last and is_last else None
    tuner = _tuner_in(error)
    return (
        write_compile_script(tuner, arch)
        if tuner is not None and not seen.last
        else None
    )


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


def _write_and_run(
    home: Path, make: Callable[[], KernelScript | None], message: str
) -> None:
    """Write the script, run it, and write how it ended."""
    try:
        if (script := make()) is None:
            return
        if script.data:
            torch.save(script.data, home / ArtifactFile.KERNEL_DATA)
        (home / ArtifactFile.KERNEL).write_text(script.text)
        result = _run(home / ArtifactFile.KERNEL, script, message)
    except Exception as error:  # noqa: BLE001 - the program's failure matters more
        result = KernelRun("", "", message=f"it could not be written: {error}")
    (home / ArtifactFile.KERNEL_RUN).write_text(result.to_line())


def _run(path: Path, script: KernelScript, message: str) -> KernelRun:
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
        return KernelRun(script.kernel, command, message=str(error))
    last_line = (done.stderr or done.stdout).strip().rpartition("\n")[2]
    is_same = has_same_ending(message, done.returncode, done.stderr)
    return KernelRun(script.kernel, command, is_same, last_line)


def has_same_ending(message: str, code: int, output: str) -> bool:
    """Return whether a kernel alone ends as in its program, which raised ``message``.

    A kernel that computes wrong values raises nothing, so an empty message matches exit
    status 0.
    """
    wanted = _KEY_PHRASES.findall(message)
    if not message:
        return code == 0
    return code != 0 and bool(wanted) and all(word in output for word in wanted)
