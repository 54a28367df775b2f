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

import contextlib
import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind

from shrinkfx.worker.backends import on_cpu
from shrinkfx.worker.backends.cuda_device import DEFAULT_ARCHITECTURE
from shrinkfx.worker.backends.cuda_source import (
    TuningBlock,
    tuning_block,
    wrapper_source,
)
from shrinkfx.worker.backends.stand_ins import Contract, Externs, MadeUp, fresh
from shrinkfx.worker.describe import mutates
from shrinkfx.worker.load import Inputs
from shrinkfx.worker.memory.arena import exact
from shrinkfx.worker.memory.bounds import CHECKER
from shrinkfx.worker.memory.findings import (
    Finding,
    Probe,
    Report,
    Unsupported,
)
from shrinkfx.worker.memory.interpreted import switch_on
from shrinkfx.worker.values import flat_inputs

__all__ = [
    "Code",
    "Compiled",
    "Finding",
    "Outcome",
    "Probe",
    "Report",
    "Unsupported",
    "generate",
    "load",
    "switch_on",
    "warm_up",
]

_WEIGHTS = {
    InputKind.PARAMETER: "weight",
    InputKind.BUFFER: "buffer",
    InputKind.CONSTANT_TENSOR: "constant",
}
_NO_CPU_TWIN = ("'CPU' backend", "not implemented for the CPU")


def warm_up() -> None:
    """Import in the server what every child would import: 2 to 3 s.

    No operator runs and no thread starts. The device guard is built here, too.
    """

    from shrinkfx.worker.backends.cuda_guard import register_guard

    register_guard()


@dataclass(frozen=True)
class Outcome:
    """What one run of the interpreter has seen.

    Attributes:
        accesses: vector accesses that were checked.
        sampled: launches of which only some programs ran: then results are none to
            compare, and nothing found means nothing found there.
        restrided: results of aten's operators laid out as on a GPU.
    """

    findings: tuple[Finding, ...] = ()
    accesses: int = 0
    sampled: tuple[str, ...] = ()
    restrided: int = 0


@dataclass(frozen=True)
class Code:
    """Generated code for the probes that were asked for.

    Attributes:
        wrapper: Inductor's Python wrapper, '' if no probe needs it.
        tuning: AOTInductor's own benchmarks, None if there is no kernel to run.
    """

    exported: ExportedProgram
    folder: Path
    wrapper: str = ""
    tuning: TuningBlock | None = None

    def benchmark(self) -> Outcome:
        """Run the hints probe: what AOTInductor runs while it compiles.

        Raises:
            Report: a kernel strays on the arguments that AOTInductor makes up.
            Unsupported: the interpreter cannot run a kernel.
        """
        switch_on()
        if self.tuning is None:
            return Outcome()
        definitions = on_cpu.on_cpu(self.tuning.definitions)
        _require(definitions)
        CHECKER.start(Probe.HINTS)
        CHECKER.roles.clear()
        CHECKER.operators = on_cpu.operators(self.tuning.definitions)
        definitions += "\nasync_compile.wait(globals())\ndel async_compile\n"
        scope: dict[str, Any] = {}
        with _run_checked():
            exec(compile(definitions, "<definitions>", "exec"), scope)
            made_up = MadeUp(scope["generate_example_value"])
            scope["generate_example_value"] = made_up
            exec(compile(on_cpu.on_cpu(self.tuning.calls), "<calls>", "exec"), scope)
        return _outcome()


def generate(
    exported: ExportedProgram,
    probes: Collection[Probe],
    *,
    folder: Path,
    arch: str = DEFAULT_ARCHITECTURE,
    options: Mapping[str, Any] | None = None,
) -> Code:
    """Generate CUDA code for a program of the CPU, before anything is interpreted.

    What Inductor or AOTInductor raises is a compile error of the program.
    """
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder / "inductor")
    options = options or {}
    wrapper, tuning = "", None
    if Probe.HINTS in probes:
        tuning = tuning_block(exported, arch, options, folder)
    if Probe.REAL in probes or Probe.CONTRACT in probes:
        wrapper = wrapper_source(exported, arch, options)
    return Code(exported, folder, wrapper, tuning)


def load(code: Code, probe: Probe = Probe.REAL) -> Compiled:
    """Make generated code callable; from here on Triton's kernels are interpreted.

    Args:
        probe: ``REAL`` or ``CONTRACT``: what its calls raise a ``Report`` for.

    Raises:
        Unsupported: the interpreter cannot run this code.
    """
    from torch._inductor.codecache import PyCodeCache

    source = on_cpu.on_cpu(code.wrapper)
    _require(source)
    switch_on()
    CHECKER.operators = on_cpu.operators(code.wrapper)
    return Compiled(code.exported, PyCodeCache.load(source), probe)


@dataclass
class Compiled:
    """A program's generated code, called as the program is.

    Buffers go from call to call, in copies of its own.
    """

    exported: ExportedProgram
    module: Any
    probe: Probe
    outcome: Outcome = field(default_factory=Outcome)

    def __post_init__(self) -> None:
        self._contract = Contract()
        self._own = _own_weights(self.exported)
        replaced = {
            "assert_size_stride": self._contract.check,
            "copy_if_misaligned": lambda value: value,  # a copy of ours is aligned
            "empty_strided_cuda": fresh,
            "extern_kernels": Externs(self.module.extern_kernels),
        }
        for name, value in replaced.items():
            setattr(self.module, name, value)

    @property
    def sampled(self) -> tuple[str, ...]:
        """Launches of the last call of which only some programs ran."""
        return self.outcome.sampled

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run once, and return the outputs in a flat list.

        Raises:
            Report: a fault of the probe that this was loaded for.
            Unsupported: the interpreter cannot run this program.
        """
        given = flat_inputs(self.exported, Inputs(args, kwargs))
        CHECKER.roles.clear()
        held = self._hold(given)
        self._contract.findings.clear()
        CHECKER.start(Probe.REAL)
        try:
            with _run_checked():
                results = list(self.module.call(list(held)))
        except Report:
            if self.probe is Probe.REAL or not self._contract.findings:
                raise
        finally:
            seen = _outcome()
            found = (*seen.findings, *self._contract.findings)
            restrided = self._contract.restrided
            self.outcome = Outcome(found, seen.accesses, seen.sampled, restrided)
            CHECKER.start(None)
        if self.probe is Probe.CONTRACT and self._contract.findings:
            raise Report(self._contract.findings)
        self._write_back(given, held)
        return results

    def _hold(self, given: list[Any]) -> list[Any]:
        """Copy what the program takes into memory of exactly its size."""
        held, count = [], 0
        specs = self.exported.graph_signature.input_specs
        for spec, value in zip(specs, given, strict=True):
            if spec.kind in _WEIGHTS:
                role = f"{_WEIGHTS[spec.kind]} {spec.target}"
                copied = self._own[str(spec.target)]
            else:
                role, count = f"input {count}", count + 1
                copied = _held(value)
            CHECKER.roles.name(copied, role)
            held.append(copied)
        return held

    def _write_back(self, given: list[Any], held: list[Any]) -> None:
        """Let the caller see what the program has written into its inputs."""
        if not mutates(self.exported):
            return
        specs = self.exported.graph_signature.input_specs
        with torch.no_grad():
            for spec, value, copied in zip(specs, given, held, strict=True):
                is_input = spec.kind is InputKind.USER_INPUT
                if is_input and isinstance(value, torch.Tensor):
                    value.copy_(copied)


@contextlib.contextmanager
def _run_checked() -> Iterator[None]:
    """Turn what an operator without a CPU twin raises into ``Unsupported``."""
    try:
        with torch.no_grad():
            yield
    except (NotImplementedError, RuntimeError) as error:
        if any(word in str(error) for word in _NO_CPU_TWIN):
            reason = str(error).splitlines()[0][:200]
            raise Unsupported(f"no CPU twin: {reason}") from error
        raise


def _require(source: str) -> None:
    if reason := on_cpu.why_not(source):
        raise Unsupported(reason)


def _outcome() -> Outcome:
    return Outcome(tuple(CHECKER.findings), CHECKER.accesses, tuple(CHECKER.sampled))


def _own_weights(exported: ExportedProgram) -> dict[str, Any]:
    """Copy what the program holds; tied weights stay one."""
    copies: dict[int, Any] = {}
    own = {}
    for spec in exported.graph_signature.input_specs:
        if spec.kind in _WEIGHTS:
            name = str(spec.target)
            stores = (exported.state_dict, exported.constants)
            value = next(store[name] for store in stores if name in store)
            own[name] = copies.setdefault(id(value), _held(value))
    return own


def _held(value: Any) -> Any:
    return exact(value) if isinstance(value, torch.Tensor) else value
