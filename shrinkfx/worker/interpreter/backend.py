"""The interpreter: generated CUDA kernels, run on CPU tensors under bounds checks.

In the server, before any fork::

    interpreter.warm_up()

In a child, once per process, because ``load`` switches Triton over for good::

    code = interpreter.generate(exported, probes, arch, options, folder)
    code.benchmark()                   # the hints probe: raises Report
    compiled = interpreter.load(code)  # eager of a user's Triton kernels works now
    compiled(*args, **kwargs)          # the real probe: raises Report
    compiled.outcome                   # what was seen, contract findings too

``Report`` holds findings, ``Unsupported`` a reason why there is no answer.
"""

from __future__ import annotations

import importlib
import os
import tempfile
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.export import ExportedProgram

from shrinkfx.errors import LoadError
from shrinkfx.protocol.choices import InductorOptions
from shrinkfx.worker.forkserver.progress_bars import start_no_thread
from shrinkfx.worker.interpreter import retarget
from shrinkfx.worker.interpreter.checked_module import Compiled, Seen, checked, seen
from shrinkfx.worker.interpreter.codegen.cuda_device import DEFAULT_ARCHITECTURE
from shrinkfx.worker.interpreter.codegen.cuda_source import (
    COMPILED,
    TuningBlock,
    Wrapper,
    compile_kernels,
    overridden,
    tuning_block,
    wrapper_source,
)
from shrinkfx.worker.interpreter.findings import (
    Probe,
    Report,
    Unsupported,
)
from shrinkfx.worker.interpreter.runtime_stubs import MadeUp
from shrinkfx.worker.interpreter.switch_on import switch_on
from shrinkfx.worker.private_api import FOR_CUDA_WITHOUT_GPU

__all__ = [
    "Code",
    "Compiled",
    "Probe",
    "Report",
    "Seen",
    "Unsupported",
    "generate",
    "load",
    "missing_name",
    "overridden",
    "switch_on",
    "warm_up",
]


def missing_name() -> str:
    """Return a message about the first private name that is missing, or ''."""
    return next((f.missing for f in FOR_CUDA_WITHOUT_GPU if f.missing), "")


def warm_up() -> None:
    """Do in the server what every child would do: imports, and Inductor's patterns.

    Generating code for one operator takes 3 s the first time and 0.1 s from then on.
    It traces: no operator runs on data, and no thread starts.

    Raises:
        LoadError: this PyTorch or Triton lacks a name that the interpreter needs.
    """
    start_no_thread()
    if reason := missing_name():
        raise LoadError(
            "a CUDA program without a GPU",
            reason,
            "use a machine with a GPU, or install a tested version of PyTorch",
        )
    importlib.import_module("triton.language.extra.cuda.libdevice")
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        exported = torch.export.export(torch.nn.ReLU(), (torch.empty(2),))
        options = {"compile_threads": 1}
        wrapper_source(exported, DEFAULT_ARCHITECTURE, options)
        tuning_block(exported, DEFAULT_ARCHITECTURE, options, Path(folder))


@dataclass(frozen=True)
class Code:
    """Generated code for the probes that were asked for.

    Attributes:
        wrapper: Inductor's Python wrapper, '' if no probe needs it.
        untried: where that has a template chosen untimed, and among how many.
        tuning: AOTInductor's own benchmarks, None if there is no kernel to run.
    """

    exported: ExportedProgram
    folder: Path
    wrapper: str = ""
    untried: tuple[str, ...] = ()
    tuning: TuningBlock | None = None

    def benchmark(self) -> Seen:
        """Run the hints probe: what AOTInductor runs while it compiles.

        Raises:
            Report: a kernel strays on the arguments that AOTInductor makes up.
            Unsupported: the interpreter cannot run a kernel.
        """
        switch_on()
        if self.tuning is None:
            return Seen()
        definitions = retarget.retarget(self.tuning.definitions)
        _require(definitions)
        kernels = retarget.operators(self.tuning.definitions)
        scope: dict[str, Any] = {}
        with checked(Probe.HINTS, kernels):
            exec(compile(definitions + COMPILED, "<definitions>", "exec"), scope)
            made_up = MadeUp(scope["generate_example_value"])
            scope["generate_example_value"] = made_up
            exec(
                compile(retarget.retarget(self.tuning.calls), "<calls>", "exec"), scope
            )
        return seen(self.tuning.untried)


def generate(
    exported: ExportedProgram,
    probes: Collection[Probe],
    *,
    folder: Path,
    arch: str = DEFAULT_ARCHITECTURE,
    options: InductorOptions | None = None,
) -> Code:
    """Generate CUDA code for a program of the CPU, before anything is interpreted.

    What Inductor or AOTInductor raises is a compile error of the program.
    """
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder / "inductor")
    options = options or {}
    wrapper, tuning = Wrapper(), None
    if Probe.COMPILE in probes:
        # Triton keeps what it has compiled, for the next program with that kernel.
        os.environ["TRITON_CACHE_DIR"] = str(folder.parent / "triton")
        compile_kernels(exported, arch, options, folder)
    if Probe.HINTS in probes:
        tuning = tuning_block(exported, arch, options, folder)
    if Probe.REAL in probes or Probe.CONTRACT in probes:
        wrapper = wrapper_source(exported, arch, options)
    return Code(exported, folder, wrapper.text, wrapper.untried, tuning)


def load(code: Code, probe: Probe = Probe.REAL) -> Compiled:
    """Make generated code callable; from here on Triton's kernels are interpreted.

    Args:
        probe: ``REAL`` or ``CONTRACT``: what its calls raise a ``Report`` for.

    Raises:
        Unsupported: the interpreter cannot run this code.
    """
    from shrinkfx.worker.private_api.cuda_api import PyCodeCache

    source = retarget.retarget(code.wrapper)
    _require(source)
    switch_on()
    kernels = retarget.operators(code.wrapper)
    module = PyCodeCache.load(source)
    return Compiled(code.exported, module, kernels, probe, code.untried)


def _require(source: str) -> None:
    if reason := retarget.why_not(source):
        raise Unsupported(reason)
