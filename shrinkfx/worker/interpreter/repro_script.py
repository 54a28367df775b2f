"""Run a CUDA repro on a machine without a GPU: its kernels run on the interpreter.

The script's text changes only in strings that name a CUDA device. The functions that it
calls to compile and to load are replaced. A script whose eager run launches a user's
Triton kernel must compile and load first, because only loading switches Triton to
interpretation.
"""

from __future__ import annotations

import contextlib
import io
import re
import tokenize
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.export import ExportedProgram

from shrinkfx.protocol.choices import InductorOptions, Probe
from shrinkfx.protocol.requests import Setup
from shrinkfx.worker.interpreter import backend as interpreter
from shrinkfx.worker.interpreter.launch import import_self_test
from shrinkfx.worker.loading import devices
from shrinkfx.worker.private_api import inductor_api


def replace_cuda(script: Path, setup: Setup, probe: Probe) -> None:
    """Prepare this process and the file at ``script`` for running the script."""
    with contextlib.suppress(ImportError):  # Triton, which may not be needed
        import_self_test()
    script.write_text(
        retarget_strings(script.read_text(encoding="utf-8")), encoding="utf-8"
    )
    # A repro whose bug is fixed runs to its end, so a load must work for any probe.
    runs = Probe.CONTRACT if probe is Probe.CONTRACT else Probe.REAL
    packages: dict[str, interpreter.GeneratedCode] = {}

    def compile_and_package(
        exported: ExportedProgram,
        *,
        package_path: str | None = None,
        inductor_configs: InductorOptions | None = None,
    ) -> str:
        path = package_path or f"model-{len(packages)}.pt2"
        code = interpreter.generate(
            exported,
            {probe, runs},
            folder=script.parent / "interpreter",
            arch=setup.arch,
            options=inductor_configs,
        )
        if probe is Probe.HINTS:
            code.benchmark()
        packages[str(path)] = code
        return str(path)

    def load_package(path: str, device_index: int = -1) -> Callable[..., Any]:
        return interpreter.load_code(packages[str(path)], runs)

    load = torch.export.load

    def load_on_cpu(file: str | io.BytesIO) -> ExportedProgram:
        archive = script.with_suffix(".pt2")
        data = Path(file).read_bytes() if isinstance(file, str) else file.read()
        archive.write_bytes(data)
        return load(devices.archive_on_cpu(str(archive), script.parent))

    devices.read_cuda_storages_on("cpu")
    vars(torch.export).update(load=load_on_cpu)
    vars(inductor_api.inductor).update(
        aoti_compile_and_package=compile_and_package, aoti_load_package=load_package
    )
    vars(torch.cuda).update(synchronize=lambda device=None: None)
    torch.Tensor.cuda = lambda self, *_, **__: self  # type: ignore[method-assign]
    torch.nn.Module.cuda = lambda self, device=None: self  # type: ignore[method-assign]


def retarget_strings(source: str) -> str:
    """Replace each string that names a CUDA device; every line keeps its number.

    >>> on_cpu('x.to("cuda:0"), "cuda is a word"')
    'x.to("cpu"), "cuda is a word"'
    """
    has_cpu_kernel = _CPU_KERNEL.search(source)
    lines = source.splitlines(keepends=True)
    tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
    for token in reversed(tokens):
        if token.type == tokenize.STRING and token.string.strip("\"'")[:4] == "cuda":
            device = token.string.strip("\"'")
            if device != "cuda" and not device.startswith("cuda:"):
                continue
            row, start, end = token.start[0] - 1, token.start[1], token.end[1]
            if has_cpu_kernel and _OF_KERNEL.search(lines[row][:start]):
                continue
            lines[row] = f'{lines[row][:start]}"cpu"{lines[row][end:]}'
    return "".join(lines)


_OF_KERNEL = re.compile(r"\.register_kernel\(\s*$|\bdevice_types\s*=\s*$")
"""The code before the device of a custom operator's kernel. It stays if a CPU kernel
exists, which it would replace."""

_CPU_KERNEL = re.compile(r"(?:\.register_kernel\(|\bdevice_types\s*=)\s*[\"']cpu\b")
