"""Write ``kernel.py``: the failing Triton kernel alone, with its arguments."""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import re
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from string import Template
from typing import Any, Self

import torch

from shrinkfx.protocol.files import ArtifactFile, KernelAlone
from shrinkfx.worker.explaining import kernel_checks
from shrinkfx.worker.explaining.kernel_checks import LARGE
from shrinkfx.worker.interpreter.emulation import (
    assembly,
    constants,
    libdevice,
    logic,
)
from shrinkfx.worker.interpreter.findings import Report
from shrinkfx.worker.interpreter.launch import LAUNCH_OBSERVERS, GeneratedLaunch

_SMALL = 64
"""Up to this many elements are written as literals; more go into a file."""


@dataclass(frozen=True)
class ArgumentMemory:
    """The memory behind an argument, and the argument's position in it.

    Attributes:
        name: the name of the memory; arguments that share memory have the same.
        all_of_it: the memory as a vector of the argument's dtype.
        size, stride, offset: the argument's view of the memory, in elements.
    """

    name: str
    all_of_it: torch.Tensor
    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int

    @classmethod
    def copy_arguments(cls, tensors: Mapping[str, torch.Tensor]) -> dict[str, Self]:
        """Copy the memory of arguments, shared memory once."""
        copies: dict[int, tuple[str, torch.UntypedStorage]] = {}
        arguments: dict[str, Self] = {}
        for name, value in tensors.items():
            storage = value.untyped_storage()
            key = storage.data_ptr() or id(storage)
            if key not in copies:
                is_large = storage.nbytes() >= LARGE
                content = storage if is_large else storage.clone()
                copies[key] = f"memory_of_{name}", content
            memory_name, copied = copies[key]
            vector = torch.empty(0, dtype=value.dtype).set_(copied)
            layout = (
                tuple(value.size()),
                tuple(value.stride()),
                int(value.storage_offset()),
            )
            arguments[name] = cls(memory_name, vector, *layout)
        return arguments

    def __str__(self) -> str:
        """Write the argument as a call of the script's function ``part``."""
        layout = f"{self.size}, {self.stride}, {self.offset}"
        return f"part({self.name!r}, {self.all_of_it.dtype}, {layout})"


def write_literal(memory: torch.Tensor) -> str:
    """Write a vector as Python, or return '' if it must go into a file.

    Constant vectors, small vectors, and very large ones, whose content is dropped, are
    written.
    """
    values, dtype = memory, memory.dtype
    if values.nbytes >= LARGE:  # its content is dropped
        return f"torch.zeros({len(values)}, dtype={dtype})"
    if not dtype.is_complex and len(values):
        first = values[0].item()
        same = values.isnan().all() if first != first else (values == first).all()
        if same:
            return f"torch.full(({len(values)},), {_number(first)}, dtype={dtype})"
    if len(values) > _SMALL or dtype.is_complex:
        return "" if len(values) else f"torch.empty(0, dtype={dtype})"
    return f"torch.tensor([{', '.join(map(_number, values.tolist()))}], dtype={dtype})"


def _number(value: Any) -> str:
    return repr(value) if abs(value) < float("inf") else f'float("{value}")'


CopiedLaunch = tuple[GeneratedLaunch, Mapping[str, ArgumentMemory]]
"""A launch, and copies of its tensor arguments as they were before it."""

_KEY_PHRASES = re.compile(
    r"out-of-bounds \w+ of \d+ bytes|through \w+|declared divisible by 16, is \d+"
    r"|device-side assert(?= in )|(?<=\): )[^:\n]+(?= \[program )"
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
def keep_failing_kernel(home: Path, kernels: Collection[str]) -> Iterator[None]:
    """Write ``kernel.py`` for the kernel that fails in the block.

    If none fails, it is the last launch of one of ``kernels``.
    """
    seen = _Launches(kernels)
    LAUNCH_OBSERVERS.append(seen.watch)
    try:
        yield
    except Exception as error:
        _write_and_run(
            home, functools.partial(_make_failure_script, seen, error), str(error)
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


def _make_failure_script(seen: _Launches, error: Exception) -> KernelScript | None:
    """Return the script of the kernel that failed to run, or None."""
    if not isinstance(error, Report) or seen.last is None:
        return None
    is_last = seen.last[0].name == error.findings[0].kernel
    return write_launch_script(*seen.last) if is_last else None


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
        result = KernelAlone("", "", output=f"it could not be written: {error}")
    (home / ArtifactFile.KERNEL_RUN).write_text(result.to_line())


def _run(path: Path, script: KernelScript, message: str) -> KernelAlone:
    """Run the script as a user without shrinkfx and without a GPU would."""
    environment = dict(os.environ)
    for name in ("PYTHONPATH", _INTERPRET):
        environment.pop(name, None)
    environment[_INTERPRET] = "1"
    command = f"{_INTERPRET}=1 python {path.name}"
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
        return KernelAlone(script.kernel, command, output=str(error))
    last_line = (done.stderr or done.stdout).strip().rpartition("\n")[2]
    is_same = has_same_ending(message, done.returncode, done.stderr)
    return KernelAlone(script.kernel, command, is_same, last_line)


def has_same_ending(message: str, code: int, output: str) -> bool:
    """Return whether a kernel alone ends as in its program, which raised ``message``.

    A kernel that computes wrong values raises nothing, so an empty message matches exit
    status 0.
    """
    wanted = _KEY_PHRASES.findall(message)
    if not message:
        return code == 0
    return code != 0 and bool(wanted) and all(word in output for word in wanted)


_BOOKMARK = "# " + "-" * 70 + "\n# {}\n# " + "-" * 70 + "\n"
_FUTURE = "from __future__ import annotations\n"
_OURS = "from shrinkfx.worker.interpreter.findings import Unsupported\n"
_DRIVER = re.compile(r"^triton_helpers\.set_driver_to_gpu\(\)$", re.MULTILINE)
_GLOBAL = re.compile(r"^\w+ = tl\.constexpr\(", re.MULTILINE)
_LOGIC = re.compile(r"\b(?:and|or|not)\b")


@dataclass(frozen=True)
class KernelScript:
    """The script of one kernel.

    Attributes:
        data: tensors that it reads from a file next to it.
    """

    kernel: str
    text: str
    data: Mapping[str, torch.Tensor] = field(default_factory=dict)


def write_launch_script(
    launch: GeneratedLaunch, copies: Mapping[str, ArgumentMemory]
) -> KernelScript:
    """Write a script with the kernel and its launch: arguments, grid and constants."""
    function = launch.tuner.fn.fn
    source = _source_of(function)
    memory = {m.name: m.all_of_it for m in copies.values()}
    data = {name: v for name, v in memory.items() if not write_literal(v)}
    load = f"data = torch.load({str(ArtifactFile.KERNEL_DATA)!r})\n" if data else ""
    names = {id(v): k for k, v in launch.arguments.items() if k in copies}
    passed = (names.get(id(v), v) for v in launch.passed)
    text = _LAUNCHING.substitute(
        name=launch.name,
        signature=launch.tuner.triton_meta["signature"],
        lacking=_write_missing_features(source),
        left_out="".join(
            f"\nZeros stand for what was in {name}: it is too large to be kept."
            for name, value in memory.items()
            if value.nbytes >= LARGE
        ),
        source=_BOOKMARK.format("The kernel, as Inductor wrote it") + source,
        function=function.__name__,
        memory=load
        + "memory = "
        + _block({k: write_literal(v) or f"data[{k!r}]" for k, v in memory.items()}),
        arguments=_block(
            {k: str(copies.get(k, repr(v))) for k, v in launch.arguments.items()}
        ),
        spans=_block(
            {k: f"(arguments[{k!r}], memory[{m.name!r}])" for k, m in copies.items()}, 1
        ),
        passed=", ".join(
            f"arguments[{p!r}]" if p in copies else repr(p) for p in passed
        ),
        grid=tuple(launch.grid),
        aligned=list(launch.aligned),
    )
    return KernelScript(launch.name, text, data)


def _source_of(function: Any) -> str:
    """Return the text of a kernel's file; Inductor writes one file for each kernel."""
    text = Path(function.__code__.co_filename).read_text()
    with_gpu = "if torch.cuda.is_available():\n    triton_helpers.set_driver_to_gpu()"
    return _DRIVER.sub(with_gpu, text).strip() + "\n"


def _write_missing_features(source: str) -> str:
    """Write the code that lets Triton's interpreter run a kernel as a GPU does."""
    parts, calls = [_read_module_text(kernel_checks)], ["", "", "if INTERPRETED:"]
    calls += ["    _apart, _aligned, _watch = apart, require_aligned, watch"]
    if "libdevice." in source:
        parts.append(_read_module_text(libdevice))
        calls.append("    give_bodies()")
    if "inline_asm_elementwise" in source:
        parts.append(_read_module_text(assembly))
        calls.append("    run_assembly()")
    if _GLOBAL.search(source):
        parts.append(_read_module_text(constants))
        calls.append("    mix_constants()")
    if _LOGIC.search(source):
        parts.append(_read_module_text(logic))
        calls.append("    compile_logic()")
    title = _BOOKMARK.format("What Triton's interpreter lacks; a GPU needs none of it")
    return title + "\n\n".join(parts) + "\n".join(calls) + "\n"


def _read_module_text(module: Any) -> str:
    """Return the text of one of our modules, changed to run without shrinkfx."""
    text = inspect.getsource(module).replace(_FUTURE, "")
    return text.replace(_OURS, "\nUnsupported = NotImplementedError\n")


def _block(items: Mapping[str, str], indent: int = 0) -> str:
    """Write a dict with one item per line."""
    outer = "    " * indent
    lines = [f"{outer}    {name!r}: {value},\n" for name, value in items.items()]
    return "".join(["{\n", *lines, outer, "}"])


_LAUNCHING = Template(
    '''"""$name alone, as it was launched.

On a GPU:        compute-sanitizer python kernel.py
Without a GPU:   TRITON_INTERPRET=1 python kernel.py

Signature: $signature
Grid: $grid$left_out
Written by shrinkfx.
"""

import os
import sys

# Else a GPU notices late what a kernel does, or not at all.
os.environ.setdefault("PYTORCH_NO_CUDA_MEMORY_CACHING", "1")
os.environ.setdefault("CUDA_LAUNCH_BLOCKING", "1")

import torch

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
if not INTERPRETED and not torch.cuda.is_available():
    sys.exit("there is no GPU: run it with TRITON_INTERPRET=1")

$lacking

$source

# ----------------------------------------------------------------------
# Its launch
# ----------------------------------------------------------------------
$memory
# Memory around each tensor is unused, so that an access out of bounds shows.
memory = {
    name: _apart(value) if INTERPRETED else value.cuda()
    for name, value in memory.items()
}


def part(name, dtype, size, stride, offset):
    whole = memory[name].view(dtype)
    return whole.as_strided(size, stride, whole.storage_offset() + offset)


arguments = $arguments
if INTERPRETED:
    _aligned(arguments.items(), $aligned)
    _watch($spans)
    $function.fn[$grid](**arguments)
else:
    stream = torch.cuda.current_stream().cuda_stream
    $function.run($passed, stream=stream)
    torch.cuda.synchronize()
for name, value in arguments.items():
    if isinstance(value, torch.Tensor):
        print(name, value)
print("$name runs to its end")
'''
)
