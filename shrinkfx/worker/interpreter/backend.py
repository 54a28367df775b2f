"""The interpreter: run generated CUDA kernels on CPU tensors with bounds checks.

In the server, before any fork::

    interpreter.warm_up()

In a child, once per process, because ``load`` switches Triton to interpretation for the
rest of the process::

    code = interpreter.generate(exported, probes, arch, options, folder)
    code.benchmark()                   # the hints probe: raises Report
    compiled = interpreter.load(code)  # user Triton kernels now run in eager, too
    compiled(*args, **kwargs)          # the real probe: raises Report
    compiled.outcome                   # what the run found, and what it did not run

``Report`` holds findings; ``Unsupported`` holds the reason why the interpreter cannot
decide.
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
from shrinkfx.worker.forkserver.progress_bars import disable_monitor_thread
from shrinkfx.worker.interpreter import retarget
from shrinkfx.worker.interpreter.checked_module import (
    CheckedModule,
    LabeledGenerator,
    RunOutcome,
    check_accesses,
    collect_outcome,
)
from shrinkfx.worker.interpreter.codegen.cuda_source import (
    COMPILE_LINES,
    TuningBlock,
    Wrapper,
    compile_kernels,
    generate_tuning_block,
    generate_wrapper,
    list_overridden_options,
)
from shrinkfx.worker.interpreter.codegen.fake_cuda import DEFAULT_ARCHITECTURE
from shrinkfx.worker.interpreter.findings import (
    Probe,
    Report,
    Unsupported,
)
from shrinkfx.worker.interpreter.switch_on import switch_on
from shrinkfx.worker.private_api import FOR_CUDA_WITHOUT_GPU

__all__ = [
    "CheckedModule",
    "GeneratedCode",
    "Probe",
    "Report",
    "RunOutcome",
    "Unsupported",
    "find_missing_api",
    "generate",
    "list_overridden_options",
    "load_code",
    "switch_on",
    "warm_up",
]


def find_missing_api() -> str:
    """Return a message about the first private API that is missing, or ''."""
    return next((f.missing for f in FOR_CUDA_WITHOUT_GPU if f.missing), "")


def warm_up() -> None:
    """Import modules and fill Inductor's pattern cache in the server, before any fork.

    Generating code for one operator takes 3 s the first time and 0.1 s afterwards. This
    function only traces: no operator runs on data, and no thread starts.

    Raises:
        LoadError: this version of PyTorch or Triton lacks a private API that the
            interpreter needs.
    """
    disable_monitor_thread()
    if reason := find_missing_api():
        raise LoadError(
            "a CUDA program without a GPU",
            reason,
            "use a machine with a GPU, or install a tested version of PyTorch",
        )
    importlib.import_module("triton.language.extra.cuda.libdevice")
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        exported = torch.export.export(torch.nn.ReLU(), (torch.empty(2),))
        options = {"compile_threads": 1}
        generate_wrapper(exported, DEFAULT_ARCHITECTURE, options)
        generate_tuning_block(exported, DEFAULT_ARCHITECTURE, options, Path(folder))


@dataclass(frozen=True)
class GeneratedCode:
    """Generated code for the requested probes.

    Attributes:
        wrapper: Inductor's Python wrapper, or '' if no probe needs it.
        untried: the operators in the wrapper for which Inductor chose a template
            without timing, each with the number of templates.
        tuning: AOTInductor's autotuning block, or None if it launches no kernel.
    """

    exported: ExportedProgram
    folder: Path
    wrapper: str = ""
    untried: tuple[str, ...] = ()
    tuning: TuningBlock | None = None

    def benchmark(self) -> RunOutcome:
        """Run the hints probe: the block with which AOTInductor times kernels.

        Raises:
            Report: a kernel access is out of bounds on the arguments that AOTInductor
                generates from size hints.
            Unsupported: the interpreter cannot run a kernel.
        """
        switch_on()
        if self.tuning is None:
            return RunOutcome()
        definitions = retarget.retarget(self.tuning.definitions)
        _require(definitions)
        kernels = retarget.read_operators(self.tuning.definitions)
        scope: dict[str, Any] = {}
        with check_accesses(Probe.HINTS, kernels):
            exec(compile(definitions + COMPILE_LINES, "<definitions>", "exec"), scope)
            made_up = LabeledGenerator(scope["generate_example_value"])
            scope["generate_example_value"] = made_up
            exec(
                compile(retarget.retarget(self.tuning.calls), "<calls>", "exec"), scope
            )
        return collect_outcome(self.tuning.untried)


def generate(
    exported: ExportedProgram,
    probes: Collection[Probe],
    *,
    folder: Path,
    arch: str = DEFAULT_ARCHITECTURE,
    options: InductorOptions | None = None,
) -> GeneratedCode:
    """Generate CUDA code for a CPU program, before this process interprets any kernel.

    Raises:
        Exception: whatever Inductor or AOTInductor raises. It is a compile error of the
            program.
    """
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder / "inductor")
    options = options or {}
    wrapper, tuning = Wrapper(), None
    if Probe.COMPILE in probes:
        # Triton's cache is shared, so that the next program with
        # the same kernel does not compile it again.
        os.environ["TRITON_CACHE_DIR"] = str(folder.parent / "triton")
        compile_kernels(exported, arch, options, folder)
    if Probe.HINTS in probes:
        tuning = generate_tuning_block(exported, arch, options, folder)
    if Probe.REAL in probes or Probe.CONTRACT in probes:
        wrapper = generate_wrapper(exported, arch, options)
    return GeneratedCode(exported, folder, wrapper.text, wrapper.untried, tuning)


def load_code(code: GeneratedCode, probe: Probe = Probe.REAL) -> CheckedModule:
    """Make generated code callable, and switch Triton to interpretation for good.

    Args:
        probe: ``REAL`` or ``CONTRACT``: the probe whose findings the returned object
            raises as a ``Report``.

    Raises:
        Unsupported: the interpreter cannot run this code.
    """
    from shrinkfx.worker.private_api.cuda_api import PyCodeCache

    source = retarget.retarget(code.wrapper)
    _require(source)
    switch_on()
    kernels = retarget.read_operators(code.wrapper)
    module = PyCodeCache.load(source)
    return CheckedModule(code.exported, module, kernels, probe, code.untried)


def _require(source: str) -> None:
    if reason := retarget.find_unsupported(source):
        raise Unsupported(reason)
