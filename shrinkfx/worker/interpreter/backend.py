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

import contextlib
import importlib
import inspect
import os
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind

from shrinkfx.errors import LoadError
from shrinkfx.protocol.choices import InductorOptions
from shrinkfx.worker.forkserver.supervise import disable_monitor_thread
from shrinkfx.worker.graph.describe import mutates
from shrinkfx.worker.interpreter import retarget
from shrinkfx.worker.interpreter.cuda_source import (
    COMPILE_LINES,
    TuningBlock,
    Wrapper,
    compile_kernels,
    generate_tuning_block,
    generate_wrapper,
    list_overridden_options,
)
from shrinkfx.worker.interpreter.fake_cuda import (
    DEFAULT_ARCHITECTURE,
    answer_device_queries,
)
from shrinkfx.worker.interpreter.findings import (
    Fault,
    KernelFinding,
    Probe,
    Report,
    Unsupported,
)
from shrinkfx.worker.interpreter.launch import interpret_kernels
from shrinkfx.worker.interpreter.memory_checks import (
    CHECKER,
    UNWRITTEN,
    PartialPropagation,
    allocate,
    copy_to_exact_size,
    drop_expanded_dims,
)
from shrinkfx.worker.model import Inputs, flat_inputs
from shrinkfx.worker.private_api import FOR_CUDA_WITHOUT_GPU, cuda_api, graph_api
from shrinkfx.worker.private_api.graph_api import pytree

__all__ = ["Unsupported", "list_overridden_options"]


def switch_on(arch: str) -> None:
    """Interpret every kernel from now on; operators see a GPU of this architecture.

    Raises:
        Unsupported: as ``interpret_kernels``.
    """
    interpret_kernels()
    answer_device_queries(arch)


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
    arch: str
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
        switch_on(self.arch)
        if self.tuning is None:
            return RunOutcome()
        definitions = retarget.retarget(self.tuning.definitions)
        _require(definitions)
        kernels = retarget.read_operators(self.tuning.definitions)
        scope: dict[str, Any] = {}
        with check_accesses(Probe.HINTS, kernels):
            exec(compile(definitions + COMPILE_LINES, "<definitions>", "exec"), scope)
            original = scope["generate_example_value"]

            def label(*args: Any, **kwargs: Any) -> Any:
                value = original(*args, **kwargs)
                CHECKER.roles.set_role(value, "generated argument")
                return value

            scope["generate_example_value"] = label
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
    return GeneratedCode(exported, folder, arch, wrapper.text, wrapper.untried, tuning)


def load_code(code: GeneratedCode, probe: Probe = Probe.REAL) -> CheckedModule:
    """Make generated code callable, and switch Triton to interpretation for good.

    Args:
        probe: ``REAL`` or ``CONTRACT``: the probe whose findings the returned object
            raises as a ``Report``.

    Raises:
        Unsupported: the interpreter cannot run this code.
    """
    source = retarget.retarget(code.wrapper)
    _require(source)
    switch_on(code.arch)
    kernels = retarget.read_operators(code.wrapper)
    module = cuda_api.PyCodeCache.load(source)
    return CheckedModule(code.exported, module, kernels, probe, code.untried)


def _require(source: str) -> None:
    if reason := retarget.find_unsupported(source):
        raise Unsupported(reason)


# A callable around generated code that checks each kernel's accesses.

_WEIGHTS = {
    InputKind.PARAMETER: "weight",
    InputKind.BUFFER: "buffer",
    InputKind.CONSTANT_TENSOR: "constant",
}
_NO_CPU_KERNEL = ("'CPU' backend", "not implemented for the CPU")


@dataclass(frozen=True)
class RunOutcome:
    """The outcome of one run on the interpreter.

    Attributes:
        accesses: the number of vector accesses that were checked.
        unseen: one line for each kernel, or part of a kernel, that was not run, with
            the reason.
        compares: whether the results can be compared with eager, because they depend on
            nothing that was not run.
    """

    accesses: int = 0
    unseen: tuple[str, ...] = ()
    compares: bool = True


def collect_outcome(untried: Sequence[str] = ()) -> RunOutcome:
    """Return the outcome of the latest checked run.

    Args:
        untried: the templates that code generation chose without timing.
    """
    if names := ", ".join(dict.fromkeys(CHECKER.untried)):
        untried = (*untried, f"further configurations of {names}")
    unseen = tuple(dict.fromkeys((*CHECKER.unseen, *untried)))
    return RunOutcome(CHECKER.accesses, unseen, not CHECKER.partial)


@contextlib.contextmanager
def check_accesses(
    probe: Probe, kernels: Mapping[str, tuple[str, ...]]
) -> Iterator[None]:
    """Run generated code in a block; check and report what its kernels access.

    Raises:
        Report: a kernel has a fault. A note names each launch that was not run in full.
        Unsupported: an operator has no CPU implementation.
    """
    CHECKER.start(probe, kernels)
    try:
        with torch.no_grad(), PartialPropagation(CHECKER.partial):
            yield
    except Report as report:
        for unseen in dict.fromkeys(CHECKER.unseen):
            report.add_note(unseen)
        raise
    except (NotImplementedError, RuntimeError) as error:
        if any(word in str(error) for word in _NO_CPU_KERNEL):
            reason = str(error).splitlines()[0][:200]
            raise Unsupported(f"no CPU twin: {reason}") from error
        raise
    finally:
        CHECKER.stop()


@contextlib.contextmanager
def check_user_kernels(probe: Probe) -> Iterator[None]:
    """Run eager in a block; for the hints probe, check what the user's kernels access.

    A kernel that also fails on the program's own inputs is another failure than that of
    the benchmark.

    Raises:
        Report: a kernel has a fault.
    """
    if probe is Probe.HINTS:
        CHECKER.start(Probe.REAL, in_eager=True)
    try:
        yield
    finally:
        CHECKER.stop()


@dataclass
class CheckedModule:
    """A program's generated code, with the calling convention of the program.

    Buffers keep their values from call to call, in copies that this object owns.
    """

    exported: ExportedProgram
    module: Any
    kernels: Mapping[str, tuple[str, ...]]
    probe: Probe
    untried: Sequence[str] = ()
    outcome: RunOutcome = field(default_factory=RunOutcome)

    def __post_init__(self) -> None:
        self._contract = LayoutChecks(_strides(self.exported))
        self._weights = _own_weights(self.exported)
        self._unwritten: list[Any] = []  # weights that skipped kernels should write
        _require_known(self.module, self._contract)
        replaced = {
            **self._contract.stubs,
            "copy_if_misaligned": lambda value: value,  # our copies are aligned
            "empty_strided_cuda": allocate_unwritten,
            "extern_kernels": LabeledExterns(self.module.extern_kernels),
            "require_no": require_no,
        }
        for name, value in replaced.items():
            setattr(self.module, name, value)

    @property
    def unseen(self) -> tuple[str, ...]:
        """The kernels that the last call skipped or ran in part, with the reasons."""
        return self.outcome.unseen

    @property
    def compares(self) -> bool:
        """Whether the last call's results depend on nothing that was not run."""
        return self.outcome.compares

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the program once, and return the outputs in a flat list.

        Raises:
            Report: a fault of the probe that this object was loaded for.
            RuntimeError: a sanity check that an environment variable enables refuses an
                input or a value.
            Unsupported: the interpreter cannot run this program.
        """
        inputs = flat_inputs(self.exported, Inputs(args, kwargs))
        check_declared_inputs(self.exported, inputs)
        self._contract.start()
        try:
            with check_accesses(Probe.REAL, self.kernels):
                CHECKER.partial.add(self._unwritten)
                copies = self._copy_inputs(inputs)
                results = list(self.module.call(list(copies)))
        except Report:
            if self.probe is Probe.REAL or not self._contract.findings:
                raise
        finally:
            self.outcome = collect_outcome(self.untried)
            weights = self._weights.values()
            self._unwritten = [w for w in weights if w in CHECKER.partial]
        if self.probe is Probe.CONTRACT and self._contract.findings:
            raise Report(self._contract.findings)
        self._write_back(inputs, copies)
        return results

    def _copy_inputs(self, inputs: list[Any]) -> list[Any]:
        """Copy the program's inputs and weights into memory of exactly their size."""
        copies, count = [], 0
        specs = self.exported.graph_signature.input_specs
        for spec, value in zip(specs, inputs, strict=True):
            if spec.kind in _WEIGHTS:
                role = f"{_WEIGHTS[spec.kind]} {spec.target}"
                copied = self._weights[str(spec.target)]
            else:
                role, count = f"input {count}", count + 1
                copied = _copy_value(value)
            CHECKER.roles.set_role(copied, role)
            copies.append(copied)
        return copies

    def _write_back(self, inputs: list[Any], copies: list[Any]) -> None:
        """Copy what the program wrote into its inputs back to the caller's tensors."""
        if not mutates(self.exported):
            return
        specs = self.exported.graph_signature.input_specs
        with torch.no_grad():
            for spec, value, copied in zip(specs, inputs, copies, strict=True):
                is_input = spec.kind is InputKind.USER_INPUT
                if is_input and isinstance(value, torch.Tensor):
                    drop_expanded_dims(value).copy_(drop_expanded_dims(copied))


def _require_known(module: ModuleType, contract: LayoutChecks) -> None:
    """Refuse generated code with unknown assertions, or without expected names.

    Raises:
        Unsupported: an unknown version of Inductor generated the code.
    """
    required = ("empty_strided_cuda", "extern_kernels", "assert_size_stride")
    missing = [name for name in required if not hasattr(module, name)]
    checks = [
        name
        for name, value in vars(module).items()
        if name.startswith("assert_") and inspect.isroutine(value)
    ]
    unknown = sorted({*checks} - {*contract.stubs})
    if missing or unknown:
        names = ", ".join([*(f"no {name}" for name in missing), *unknown])
        reason = f"torch {torch.__version__} generates unknown code: {names}"
        raise Unsupported(reason)


def _strides(exported: ExportedProgram) -> dict[str, set[tuple[int, ...]]]:
    """Collect the strides that the graph declares for each operator's results."""
    by_operator: dict[str, set[tuple[int, ...]]] = {}
    for node in exported.graph.nodes:
        for value in pytree.tree_leaves(node.meta.get("val")):
            if isinstance(value, torch.Tensor):
                strides = by_operator.setdefault(f"torch.ops.{node.target}", set())
                strides |= {tuple(value.stride())} if _is_static(value) else set()
    return by_operator


def _is_static(value: torch.Tensor) -> bool:
    return all(isinstance(step, int) for step in value.stride())


def _own_weights(exported: ExportedProgram) -> dict[str, Any]:
    """Copy the program's weights, buffers and constants; tied weights stay tied."""
    copies: dict[int, Any] = {}
    weights = {}
    for spec in exported.graph_signature.input_specs:
        if spec.kind in _WEIGHTS:
            name = str(spec.target)
            stores = (exported.state_dict, exported.constants)
            value = next(store[name] for store in stores if name in store)
            weights[name] = copies.setdefault(id(value), _copy_value(value))
    return weights


def _copy_value(value: Any) -> Any:
    return copy_to_exact_size(value) if isinstance(value, torch.Tensor) else value


# AOTInductor's input checks in Python, for ``AOTI_RUNTIME_CHECK_INPUTS``.
#
# Inductor's Python wrapper ignores the variable. The order and the messages of the
# checks are those that ``torch/_inductor/codegen/cpp_wrapper_cpu.py`` writes into a
# package.

VARIABLE = "AOTI_RUNTIME_CHECK_INPUTS"


def check_declared_inputs(exported: ExportedProgram, values: Sequence[Any]) -> None:
    """Compare inputs with the program's declarations, if the variable enables that.

    Args:
        values: all inputs of the graph in order, weights included.

    Raises:
        RuntimeError: an input has another dtype, size or stride than declared.
    """
    if os.environ.get(VARIABLE, "0")[:1] in ("", "0"):
        return
    specs = exported.graph_signature.input_specs
    placeholders = exported.graph.find_nodes(op="placeholder")
    inputs = [
        (node.meta.get("val"), value)
        for spec, node, value in zip(specs, placeholders, values, strict=True)
        if spec.kind is InputKind.USER_INPUT
    ]
    for number, (declared, value) in enumerate(inputs):
        if isinstance(declared, torch.Tensor) and isinstance(value, torch.Tensor):
            for mismatch in _wrong(declared, value):
                raise RuntimeError(f"input_handles[{number}]: {mismatch}")


def _wrong(declared: torch.Tensor, value: torch.Tensor) -> Iterator[str]:
    """Yield a message for each mismatch, in the order of AOTInductor's checks."""
    if value.dtype is not declared.dtype:
        yield f"unmatched dtype, expected: {declared.dtype}, but got: {value.dtype}"
    for dim, (size, got) in enumerate(zip(declared.shape, value.shape, strict=True)):
        low, high = _range(size)
        if low == high != got:
            yield f"unmatched dim value at {dim}, expected: {low}, but got: {got}"
        elif got < low:
            text = f"expected it to be >= {low}, but got: {got}"
            yield f"dim value is too small at {dim}, {text}"
        elif got > high:
            text = f"expected to be <= {high}, but got: {got}"
            yield f"dim value is too large at {dim}, {text}"
    strides = zip(declared.stride(), value.stride(), strict=True)
    for dim, (step, got) in enumerate(strides):
        if isinstance(step, int) and step != got:
            yield f"unmatched stride value at {dim}, expected: {step}, but got: {got}"


def _range(size: int | torch.SymInt) -> tuple[Any, Any]:
    """Return the bounds of a size; AOTInductor, too, knows only its range.

    Returns:
        SymPy numbers, which may be infinite, or twice the size itself if it is static.
    """
    if isinstance(size, int):
        return size, size
    node = size.node
    assert node.shape_env is not None
    bounds = graph_api.bound_sympy(node.expr, node.shape_env.var_to_range)
    return bounds.lower, bounds.upper


class LayoutChecks:
    """Replaces the size, stride and dtype assertions in generated code.

    The results of aten operators have the CPU's strides here, so they are copied to the
    declared strides. The results of a custom operator and the inputs of the program
    must have the layout that was declared when the code was generated. A custom
    operator that calls aten operators may also return the layout that was declared on
    the CPU.

    ``stubs`` maps the names in the generated code to the replacements.

    Args:
        on_cpu: the strides that the CPU program declares for each operator's results.
    """

    def __init__(self, on_cpu: Mapping[str, Collection[tuple[int, ...]]]) -> None:
        self._on_cpu = on_cpu
        self.stubs: dict[str, Callable[..., Any]] = {
            "assert_alignment": lambda *_: None,  # switched off: copies are aligned
            "assert_size_stride": self.check,
            "assert_size_stride_grouped": self.check_each,  # since torch 2.14
            "assert_tensor_metadata": self.check,  # since torch 2.14
        }
        self.start()

    def start(self) -> None:
        """Forget the findings of the last call."""
        self.findings: list[KernelFinding] = []

    def check_each(self, values: Any, sizes: Any, strides: Any, operator: str) -> None:
        """Compare inputs with their declared sizes and strides."""
        for value, size, stride in zip(values, sizes, strides, strict=True):
            self.check(value, size, stride, operator)

    def check(self, value: Any, size: Any, stride: Any, *details: Any) -> Any:
        """Compare a tensor with its declared layout; return a tensor with that layout.

        Args:
            details: the declared dtype, if the assertion has one, and the operator
                that computed the tensor.

        Returns:
            ``value``, or a copy with the declared strides. A mismatch that a copy
            cannot explain is recorded in ``findings``.
        """
        dtype = next((p for p in details if isinstance(p, torch.dtype)), None)
        operator = next((p for p in details if isinstance(p, str)), "input")
        if value is None:  # an optional output
            return None
        if operator != "input":
            CHECKER.roles.set_role_once(value, f"result of {_short(operator)}")
        dtype = dtype or value.dtype
        try:
            if value.dtype is not dtype:
                raise AssertionError(f"expected dtype {dtype} but got {value.dtype}")
            cuda_api.assert_size_stride(value, size, stride, operator)
        except AssertionError as error:
            is_aten = operator.startswith("torch.ops.aten.")
            as_on_cpu = value.stride() in self._on_cpu.get(operator, ())
            as_on_cpu = as_on_cpu and value.dtype is dtype
            if (is_aten or as_on_cpu) and tuple(value.shape) == tuple(size):
                copied = allocate(size, stride, dtype).copy_(value)
                CHECKER.roles.set_role(copied, f"result of {_short(operator)}")
                return copied
            self._note(str(error), operator)
        return value

    def _note(self, message: str, operator: str) -> None:
        # The further lines are advice, and not part of the finding.
        text = f"{message.splitlines()[0]}\nError in op: {operator}"
        role = operator if operator == "input" else f"result of {_short(operator)}"
        finding = KernelFinding(
            probe=Probe.CONTRACT,
            fault=Fault.LAYOUT,
            operators=(_short(operator),),
            role=role,
            message=text,
        )
        self.findings.append(finding)


class LabeledExterns:
    """Wraps Inductor's library calls (``extern_kernels``), and labels their results."""

    def __init__(self, original: Any) -> None:
        self._original = original

    def __getattr__(self, name: str) -> Any:
        function = getattr(self._original, name)

        def called(*args: Any, **kwargs: Any) -> Any:
            CHECKER.roles.set_result_role(kwargs.get("out"), (f"aten.{name}",))
            return function(*args, **kwargs)

        return called


def require_no(what: str, name: str, value: torch.Tensor) -> None:
    """Replace the check that ``nan_asserts`` puts after each kernel.

    Memory that a skipped kernel has left unwritten is not checked.

    Raises:
        RuntimeError: the value has a NaN or an infinity; the message is that of
            AOTInductor's own check.
    """
    if value in CHECKER.partial or not value.is_floating_point():
        return
    number = value.float() if value.dtype.itemsize == 1 else value
    if getattr(torch, f"is{what}")(number).any():
        word = {"nan": "NaN", "inf": "INF"}[what]
        raise RuntimeError(f"At least one {word} in {name}")


def allocate_unwritten(size: Any, stride: Any, dtype: torch.dtype) -> torch.Tensor:
    """Allocate a tensor in place of ``empty_strided_cuda``; label it as unwritten."""
    tensor = allocate(size, stride, dtype)
    CHECKER.roles.set_role(tensor, UNWRITTEN)
    return tensor


def _short(operator: str) -> str:
    return operator.removeprefix("torch.ops.")
