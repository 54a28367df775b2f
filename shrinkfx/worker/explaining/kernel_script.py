"""The text of ``kernel.py``: one Triton kernel, its arguments, and its launch."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from string import Template
from typing import Any

import torch

from shrinkfx.protocol.files import ArtifactFile
from shrinkfx.worker.explaining import kernel_checks
from shrinkfx.worker.explaining.kernel_checks import LARGE
from shrinkfx.worker.explaining.kernel_memory import ArgumentMemory, write_literal
from shrinkfx.worker.interpreter.codegen.cuda_device import make_device_properties
from shrinkfx.worker.interpreter.emulation import (
    assembly,
    constants,
    libdevice,
    logic,
)
from shrinkfx.worker.interpreter.launch import GeneratedLaunch

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
        compiles: the script only compiles the kernel, to show that this fails.
    """

    kernel: str
    text: str
    data: Mapping[str, torch.Tensor] = field(default_factory=dict)
    compiles: bool = False


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


def write_compile_script(tuner: Any, arch: str) -> KernelScript:
    """Write a script that compiles a kernel without a GPU, to show that this fails."""
    function, device = tuner.fn.fn, make_device_properties(arch)
    name = str(tuner.inductor_meta.get("kernel_name") or function.__name__)
    text = _COMPILING.substitute(
        name=name,
        signature=tuner.triton_meta["signature"],
        source=_BOOKMARK.format("The kernel, as Inductor wrote it")
        + _source_of(function),
        function=function.__name__,
        arch=arch,
        capability=10 * device.major + device.minor,
        shared=device.shared_memory_per_block_optin,
    )
    return KernelScript(name, text, compiles=True)


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

_COMPILING = Template(
    '''"""$name alone, which does not compile for $arch: python kernel.py

It takes no GPU.
Signature: $signature
Written by shrinkfx.
"""

import os
import sys

import torch

if os.environ.get("TRITON_INTERPRET") == "1":
    sys.exit("run it without TRITON_INTERPRET: it is about Triton's compiler")

$source

# ----------------------------------------------------------------------
# Its compilation, in each configuration
# ----------------------------------------------------------------------
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.errors import OutOfResources

SHARED = $shared  # bytes that a block may have

for config in $function.configs:
    meta = $function.triton_meta
    constants = {**meta["constants"], **config.kwargs}
    signature = {
        name: "constexpr" if name in constants else kind
        for name, kind in meta["signature"].items()
    }
    attributes = meta["configs"][0]
    kernel = ASTSource($function.fn, signature, constants, attributes)
    options = {"num_warps": config.num_warps, "num_stages": config.num_stages}
    target = GPUTarget("cuda", $capability, 32)
    compiled = triton.compile(kernel, target=target, options=options)
    if compiled.metadata.shared > SHARED:
        raise OutOfResources(compiled.metadata.shared, SHARED, "shared memory")
print("$name compiles")
'''
)
