"""A program's generated code as a callable whose kernels are checked."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind

from shrinkfx.worker.graph.describe import mutates
from shrinkfx.worker.interpreter.findings import (
    KernelFinding,
    Probe,
    Report,
    Unsupported,
)
from shrinkfx.worker.interpreter.input_checks import require_declared
from shrinkfx.worker.interpreter.memory_checks.arena import distinct, exact
from shrinkfx.worker.interpreter.memory_checks.bounds import CHECKER
from shrinkfx.worker.interpreter.memory_checks.partial import Spreading
from shrinkfx.worker.interpreter.runtime_stubs import (
    Contract,
    Externs,
    fresh,
    require_no,
)
from shrinkfx.worker.model import Inputs, flat_inputs
from shrinkfx.worker.private_api.graph_api import pytree

_WEIGHTS = {
    InputKind.PARAMETER: "weight",
    InputKind.BUFFER: "buffer",
    InputKind.CONSTANT_TENSOR: "constant",
}
_NO_CPU_TWIN = ("'CPU' backend", "not implemented for the CPU")


@dataclass(frozen=True)
class Seen:
    """What one run of the interpreter has seen.

    Attributes:
        accesses: vector accesses that were checked.
        unseen: what was not run, kernel by kernel, and why.
        compares: results can be compared: they depend on nothing unseen.
        restrided: results of aten's operators laid out as on a GPU.
    """

    findings: tuple[KernelFinding, ...] = ()
    accesses: int = 0
    unseen: tuple[str, ...] = ()
    compares: bool = True
    restrided: int = 0


def seen(untried: Sequence[str] = (), contract: Contract | None = None) -> Seen:
    """State what the latest checked run has seen; ``untried``: of its code, before."""
    found = CHECKER.findings + (contract.findings if contract else [])
    restrided = contract.restrided if contract else 0
    if some := ", ".join(dict.fromkeys(CHECKER.untried)):
        untried = (*untried, f"further configurations of {some}")
    unseen = tuple(dict.fromkeys((*CHECKER.unseen, *untried)))
    whole = not CHECKER.partial
    return Seen(tuple(found), CHECKER.accesses, unseen, whole, restrided)


@contextlib.contextmanager
def checked(probe: Probe, kernels: Mapping[str, tuple[str, ...]]) -> Iterator[None]:
    """Run generated code inside: what its kernels access is checked and reported.

    Raises:
        Report: a fault, with a note for each launch that was not seen in full.
        Unsupported: an operator has no twin on the CPU.
    """
    CHECKER.start(probe, kernels)
    try:
        with torch.no_grad(), Spreading(CHECKER.partial):
            yield
    except Report as report:
        for unseen in dict.fromkeys(CHECKER.unseen):
            report.add_note(unseen)
        raise
    except (NotImplementedError, RuntimeError) as error:
        if any(word in str(error) for word in _NO_CPU_TWIN):
            reason = str(error).splitlines()[0][:200]
            raise Unsupported(f"no CPU twin: {reason}") from error
        raise
    finally:
        CHECKER.stop()


@dataclass
class Compiled:
    """A program's generated code, called as the program is.

    Buffers go from call to call, in copies of its own.
    """

    exported: ExportedProgram
    module: Any
    kernels: Mapping[str, tuple[str, ...]]
    probe: Probe
    untried: Sequence[str] = ()
    outcome: Seen = field(default_factory=Seen)

    def __post_init__(self) -> None:
        self._contract = Contract(_strides(self.exported))
        self._own = _own_weights(self.exported)
        self._unwritten: list[Any] = []  # of them, by what was not run
        _require_known(self.module, self._contract)
        replaced = {
            **self._contract.stubs,
            "copy_if_misaligned": lambda value: value,  # a copy of ours is aligned
            "empty_strided_cuda": fresh,
            "extern_kernels": Externs(self.module.extern_kernels),
            "require_no": require_no,
        }
        for name, value in replaced.items():
            setattr(self.module, name, value)

    @property
    def unseen(self) -> tuple[str, ...]:
        """What of the last call was not run, kernel by kernel."""
        return self.outcome.unseen

    @property
    def compares(self) -> bool:
        """Tell whether the last call's results depend on nothing unseen."""
        return self.outcome.compares

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run once, and return the outputs in a flat list.

        Raises:
            Report: a fault of the probe that this was loaded for.
            RuntimeError: a sanity flag is set, and it refuses an input or a value.
            Unsupported: the interpreter cannot run this program.
        """
        given = flat_inputs(self.exported, Inputs(args, kwargs))
        require_declared(self.exported, given)
        self._contract.start()
        try:
            with checked(Probe.REAL, self.kernels):
                CHECKER.partial.add(self._unwritten)
                held = self._hold(given)
                results = list(self.module.call(list(held)))
        except Report:
            if self.probe is Probe.REAL or not self._contract.findings:
                raise
        finally:
            self.outcome = seen(self.untried, self._contract)
            own = self._own.values()
            self._unwritten = [kept for kept in own if kept in CHECKER.partial]
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
                    distinct(value).copy_(distinct(copied))


def _require_known(module: ModuleType, contract: Contract) -> None:
    """Refuse generated code with unknown names of checks, or without expected names.

    Raises:
        Unsupported: an unknown version of Inductor generated the code.
    """
    called = ("empty_strided_cuda", "extern_kernels", "assert_size_stride")
    lacking = [name for name in called if not hasattr(module, name)]
    checks = [
        name
        for name, value in vars(module).items()
        if name.startswith("assert_") and inspect.isroutine(value)
    ]
    unknown = sorted({*checks} - {*contract.stubs})
    if lacking or unknown:
        names = ", ".join([*(f"no {name}" for name in lacking), *unknown])
        reason = f"torch {torch.__version__} generates unknown code: {names}"
        raise Unsupported(reason)


def _strides(exported: ExportedProgram) -> dict[str, set[tuple[int, ...]]]:
    """Gather the strides that each operator's results were promised to have."""
    found: dict[str, set[tuple[int, ...]]] = {}
    for node in exported.graph.nodes:
        for value in pytree.tree_leaves(node.meta.get("val")):
            if isinstance(value, torch.Tensor):
                strides = found.setdefault(f"torch.ops.{node.target}", set())
                strides |= {tuple(value.stride())} if _is_static(value) else set()
    return found


def _is_static(value: torch.Tensor) -> bool:
    return all(isinstance(step, int) for step in value.stride())


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
