"""Generate the CUDA code of Inductor and AOTInductor for a program, as text."""

from __future__ import annotations

import contextlib
import copy
import inspect
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar
from unittest import mock

import sympy
import torch
from torch import fx
from torch.export import ExportedProgram
from torch.export.graph_signature import OutputKind

from shrinkfx.protocol.choices import InductorOptions
from shrinkfx.worker.interpreter.fake_cuda import (
    CONFIG,
    DEVICE,
    NO_VALUE,
    attach_constant,
    fake_cuda,
    list_known_settings,
)
from shrinkfx.worker.interpreter.findings import Unsupported
from shrinkfx.worker.private_api import cuda_api, graph_api, inductor_api
from shrinkfx.worker.private_api.graph_api import FakeTensor, pytree

T = TypeVar("T")

_OPTIONS: InductorOptions = {
    "size_asserts": True,  # they become the contract probe
    "alignment_asserts": False,
    "allow_buffer_reuse": False,  # a buffer in another's place hides an overrun
}
_AOTI_OPTIONS: InductorOptions = {
    "aot_inductor.package_constants_in_so": False,
    "aot_inductor.package_cpp_only": True,
    # This option makes AOTInductor generate the block that the hints probe runs.
    "triton.autotune_at_compile_time": True,
}
_AOTI_COMPILE = inductor_api.aoti_compile_and_package
"""The real function, because running a repro replaces it (``repro_script.py``)."""

_NEEDS_DECOMPOSITION = (
    "_thnn_fused",
    "arguments from the 'CUDA' backend",
    "Found no NVIDIA driver",
    "CUDA error: ",
)
"""Parts of error messages which show that an operator needs a GPU to trace or run.

``gru_cell`` and ``lstm_cell`` dispatch to such operators. Without a GPU, PyTorch 2.13
traces the operator of the LSTM, and 2.15 that of the GRU.
"""

_FUSED_CELL = re.compile(r"_thnn_fused\w+")
_NEEDS_VALUES = ("dispatch key DispatchKey.CUDA", NO_VALUE)
_NEEDS_CPU = "must be on CPU, got cuda"
"""Part of an error for a tensor that may not be moved to the GPU."""


@dataclass(frozen=True)
class TuningBlock:
    """The autotuning block that AOTInductor runs while it compiles.

    Attributes:
        definitions: the kernels, as AOTInductor compiles them.
        calls: launches on arguments that Inductor generates from size hints.
        untried: the operators for which a template was chosen without timing, each with
            the number of templates.
    """

    definitions: str
    calls: str
    untried: tuple[str, ...] = ()


@dataclass(frozen=True)
class Wrapper:
    """Inductor's Python wrapper, with its kernels.

    Attributes:
        untried: the operators for which a template was chosen without timing, each with
            the number of templates.
    """

    text: str = ""
    untried: tuple[str, ...] = ()


COMPILE_LINES = "\nasync_compile.wait(globals())\ndel async_compile\n"
"""The lines after the kernel definitions that compile them."""


class NoCode(Exception):
    """Inductor ended without generating the requested code."""


class _CodeReady(BaseException):
    """Stops Inductor once the code is there: the next steps need a GPU or a compiler.

    It derives from BaseException, so that no ``except Exception`` on the way handles
    it.
    """


def generate_wrapper(
    exported: ExportedProgram, arch: str, options: InductorOptions
) -> Wrapper:
    """Generate Inductor's Python wrapper for a program, with its kernels."""

    def generate(program: ExportedProgram) -> Wrapper:
        wrapper = _generate_wrapper(program, arch, options)
        if cell := _FUSED_CELL.search(wrapper.text):
            raise NotImplementedError(f"{cell[0]} does not run on the CPU")
        return wrapper

    return _with_retry(exported, generate)


def generate_tuning_block(
    exported: ExportedProgram, arch: str, options: InductorOptions, folder: Path
) -> TuningBlock | None:
    """Generate AOTInductor's autotuning block; return None if it launches no kernel."""
    block: list[TuningBlock] = []

    def keep(wrapper: Any) -> None:
        definitions = wrapper.kernel_autotune_defs.getvalue()
        block.append(TuningBlock(definitions, wrapper.kernel_autotune_calls.getvalue()))

    untried = _with_retry(exported, lambda e: _run_aoti(e, arch, options, folder, keep))
    if not block or ".run(" not in block[0].calls:
        return None
    return replace(block[0], untried=untried)


def compile_kernels(
    exported: ExportedProgram, arch: str, options: InductorOptions, folder: Path
) -> None:
    """Compile AOTInductor's kernels with Triton and ptxas, in each configuration.

    Raises:
        RuntimeError: a kernel does not compile; the error is wrapped as AOTInductor
            wraps it.
    """
    _with_retry(
        exported, lambda e: _run_aoti(e, arch, options, folder, _compile_kernels)
    )


def _compile_kernels(wrapper: Any) -> None:
    scope: dict[str, Any] = {}
    try:
        exec(wrapper.kernel_autotune_defs.getvalue() + COMPILE_LINES, scope)
        for kernel in scope.values():
            if isinstance(kernel, cuda_api.CachingAutotuner) and not kernel.launchers:
                kernel.precompile()
    except Exception as error:
        text = f"Failed to run autotuning code block: {error}"
        raise RuntimeError(text) from error


def _with_retry(
    exported: ExportedProgram, generate: Callable[[ExportedProgram], T]
) -> T:
    """Generate code; retry with decomposed operators if tracing needs a GPU.

    Raises:
        Unsupported: the decomposed operators need a GPU as well.
    """
    try:
        return generate(exported)
    except Exception as error:
        if not any(word in str(error) for word in _NEEDS_DECOMPOSITION):
            _raise_if_unsupported(error)
            raise
    try:
        return generate(exported.run_decompositions())
    except Exception as error:
        _raise_if_unsupported(error)
        raise


def _raise_if_unsupported(error: Exception) -> None:
    """Raise ``Unsupported`` if code generation failed for lack of a GPU.

    Raises:
        Unsupported: it did, or an operator has no CUDA kernel. Otherwise the program
            caused the failure, and this returns.
    """
    if operator := _find_operator_without_cuda(error):
        reason = f"{operator} has no CUDA kernel, so eager fails on a GPU as well"
        raise Unsupported(reason) from error
    first = str(error).strip().partition("\n")[0][:200]
    if _NEEDS_CPU in str(error):
        reason = f"an operator does not take its inputs from the GPU: {first}"
        raise Unsupported(reason) from error
    if any(word in str(error) for word in (*_NEEDS_DECOMPOSITION, *_NEEDS_VALUES)):
        reason = f"code generation needs a GPU: {first}"
        raise Unsupported(reason) from error


def _find_operator_without_cuda(error: BaseException | None) -> str:
    """Return the operator that has failed because it has no CUDA kernel, or ''.

    A PyTorch without CUDA has no CUDA kernel of any operator; so it cannot tell.
    """
    has_kernel = cuda_api.has_computed_kernel
    while error is not None:
        if isinstance(error, cuda_api.fake_tensor.UnsupportedOperatorException):
            name = str(error.func.name())
            if has_kernel("aten::mm", "CUDA") and not has_kernel(name, "CUDA"):
                return name
        error = error.__cause__ or error.__context__
    return ""


def _generate_wrapper(
    exported: ExportedProgram, arch: str, options: InductorOptions
) -> Wrapper:
    sources: list[str] = []

    def keep(code: str) -> None:
        sources.append(code)
        raise _CodeReady

    module = lift_mutations(copy_to_fake_cuda(exported))
    fakes = [n.meta["val"] for n in module.graph.find_nodes(op="placeholder")]
    saving = mock.patch.object(
        cuda_api.GraphLowering, "save_output_code", staticmethod(keep)
    )
    with (
        fake_cuda(arch),
        run_fakes_on_device(),
        solve_input_dims(),
        choose_templates_untimed() as untried,
        saving,
        torch.no_grad(),
        inductor_api.config.patch(dict(_settings(options))),
        contextlib.suppress(_CodeReady),
    ):
        cuda_api.compile_fx(module, fakes)
    if sources:
        return Wrapper(sources[0], tuple(untried))
    raise NoCode("Inductor has generated no wrapper")


def _run_aoti(
    exported: ExportedProgram,
    arch: str,
    options: InductorOptions,
    folder: Path,
    at_block: Callable[[Any], None],
) -> tuple[str, ...]:
    """Run AOTInductor up to its autotuning block, and call ``at_block`` in its place.

    Returns:
        The operators for which a template was chosen without timing.

    Raises:
        Unsupported: AOTInductor did not reach the autotuning block, not even an empty
            one.
    """
    reached = False

    def intercept(self: Any) -> None:
        nonlocal reached
        reached = True
        at_block(self)
        raise _CodeReady

    def stop(*_: Any, **__: Any) -> None:
        raise _CodeReady

    intercepting = mock.patch.object(
        cuda_api.PythonWrapperCodegen, "generate_and_run_autotune_block", intercept
    )
    stopping = mock.patch.object(cuda_api.AotCodeCompiler, "compile", stop)
    with (
        fake_cuda(arch),
        run_fakes_on_device(),
        choose_templates_untimed() as untried,
        intercepting,
        stopping,
        torch.no_grad(),
        contextlib.suppress(_CodeReady),
    ):
        _AOTI_COMPILE(
            copy_to_fake_cuda(exported),
            package_path=str(folder / "never.pt2"),
            inductor_configs={**_settings(options), **_AOTI_OPTIONS},
        )
    if not reached:
        raise Unsupported("AOTInductor did not reach the benchmark of its kernels")
    return tuple(untried)


def _settings(options: InductorOptions) -> InductorOptions:
    """Return the user's options, overridden by those that code generation needs."""
    return {**options, **list_known_settings(), **_OPTIONS}


def list_overridden_options(options: InductorOptions) -> list[str]:
    """List the user's options that code generation without a GPU overrides."""
    fixed = {**CONFIG, **_OPTIONS, **_AOTI_OPTIONS}
    return sorted(
        name for name in options if fixed.get(name, options[name]) != options[name]
    )


# Choose a template of a GEMM, convolution or attention where none can be timed.
#
# With ``max_autotune`` Inductor times the choices for such an operator. Without a
# GPU, the first choice made from a Triton template is taken, because the interpreter
# cannot check a library's kernel.


@contextlib.contextmanager
def choose_templates_untimed() -> Iterator[list[str]]:
    """Let Inductor choose templates without timing them on a device.

    Yields:
        A list that receives, on exit, a line for each operator with templates that were
        not run.
    """
    untried: dict[str, None] = {}

    def timed(self: Any, name: str, *args: Any, **kwargs: Any) -> dict[Any, float]:
        choices = kwargs.get("choices") or next(a for a in args if _are_choices(a))
        ordered = sorted(choices, key=_is_no_template)
        templates = sum(not _is_no_template(choice) for choice in ordered)
        if templates > 1:
            untried[f"{name}: only the first of {templates} templates ran"] = None
        return {choice: float(place) for place, choice in enumerate(ordered)}

    lines: list[str] = []
    with (
        mock.patch.object(cuda_api.AlgorithmSelectorCache, "do_autotuning", timed),
        mock.patch.object(
            cuda_api.AlgorithmSelectorCache, "make_precompile_fn", return_value=dict
        ),
    ):
        yield lines
        lines += untried


def _are_choices(value: Any) -> bool:
    is_list = isinstance(value, Sequence) and len(value) > 0
    return is_list and all(
        isinstance(choice, cuda_api.ChoiceCaller) for choice in value
    )


def _is_no_template(choice: Any) -> bool:
    return not isinstance(choice, cuda_api.TritonTemplateCaller)


# Let the Python wrapper solve for symbols in input sizes, as AOTInductor's does.
#
# If an input's dim is declared as ``2*half``, and no input has a dim ``half``,
# Inductor's C++ wrapper solves for ``half``; its Python wrapper does so since torch
# 2.14, but not for an input without elements.


def solve_input_dims() -> contextlib.AbstractContextManager[Any]:
    """Patch the Python wrapper to solve an input's size for its one unknown symbol."""
    original = cuda_api.PythonWrapperCodegen.codegen_input_symbol_assignment
    solves = "deferred_symbol_assignments" in inspect.signature(original).parameters

    def assign(
        self: Any, name: str, value: Any, bound_vars: Any, *deferred: Any
    ) -> None:
        original(self, name, value, bound_vars, *deferred)
        sizes = _sizes(value)
        if solves and 0 not in sizes:
            return  # Inductor itself solves
        for dim, size in enumerate(sizes):
            unknown = size.free_symbols - set(bound_vars)
            if len(unknown) == 1:
                (symbol,) = unknown
                _solve(self.prefix, symbol, size, f"{name}.size({dim})")
                bound_vars.add(symbol)

    name = "codegen_input_symbol_assignment"
    return mock.patch.object(cuda_api.PythonWrapperCodegen, name, assign)


def _sizes(value: Any) -> list[sympy.Expr]:
    sizes = value.get_size() if isinstance(value, cuda_api.ir.TensorBox) else ()
    return [
        size if isinstance(size, sympy.Expr) else sympy.Integer(1) for size in sizes
    ]


def _solve(code: Any, symbol: sympy.Symbol, size: sympy.Expr, actual: str) -> None:
    """Write a line such as ``half = int(arg0_1.size(1) // 2)`` into the wrapper.

    Raises:
        AssertionError: the size cannot be solved for the symbol.
    """
    value = sympy.Symbol("given", integer=True)
    solution = cuda_api.try_solve(sympy.Eq(size, value), symbol)
    if solution is None:
        raise AssertionError(f"{sympy.Eq(size, value)} is not solvable")
    code.writeline(
        f"{symbol} = int((lambda given: {cuda_api.pexpr(solution[1])})({actual}))"
    )


# Copy a CPU program to a fake GPU, so that Inductor generates CUDA code for it.
#
# The input program does not change. All tensors of the copy are fake, so no GPU
# memory is needed.

_ATEN = torch.ops.aten
_MUTATIONS = frozenset(
    {OutputKind.BUFFER_MUTATION, OutputKind.USER_INPUT_MUTATION}
    | {k for k in OutputKind if k.name == "PARAMETER_MUTATION"}
)


def copy_to_fake_cuda(exported: ExportedProgram) -> ExportedProgram:
    """Copy a program to the fake GPU, with FakeTensors for all its tensors."""
    root = copy.deepcopy(exported.graph_module)
    signature = copy.deepcopy(exported.graph_signature)
    for old, new in zip(exported.graph.nodes, root.graph.nodes, strict=True):
        if old.name != new.name:  # fx renames nodes with a builtin's name: input
            signature.replace_all_uses(old.name, new.name)
    convert = _Converter(exported)
    for module in root.modules():
        if isinstance(module, fx.GraphModule):
            _move_graph(module, convert)
    example = exported.example_inputs
    return ExportedProgram(
        root=root,
        graph=root.graph,
        graph_signature=signature,
        state_dict={k: convert(v) for k, v in exported.state_dict.items()},
        range_constraints=copy.copy(exported.range_constraints),
        module_call_graph=list(exported.module_call_graph),
        example_inputs=example and pytree.tree_map(convert, example),
        constants={k: convert(v) for k, v in exported.constants.items()},
        verifiers=exported.verifiers,
    )


class _Converter:
    """Converts tensors to FakeTensors of one mode; tied weights stay tied."""

    def __init__(self, exported: ExportedProgram) -> None:
        values = (node.meta.get("val") for node in exported.graph.nodes)
        modes = (getattr(value, "fake_mode", None) for value in values)
        mode = next((m for m in modes if m is not None), None)
        self._mode: Any = mode or graph_api.FakeTensorMode()
        self._fakes: dict[int, torch.Tensor] = {}
        self._retained: list[torch.Tensor] = []

    def __call__(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        if id(value) not in self._fakes:
            self._retained.append(value)  # otherwise another tensor could get its id
            self._fakes[id(value)] = self._fake(value)
        return self._fakes[id(value)]

    def _fake(self, value: torch.Tensor) -> torch.Tensor:
        with self._mode:
            fake = torch.empty_strided(
                value.size(), value.stride(), dtype=value.dtype, device=DEVICE
            )
        if isinstance(value, torch.nn.Parameter):
            fake = torch.nn.Parameter(fake, requires_grad=value.requires_grad)
        wrapped = cuda_api.is_functorch_wrapped_tensor(value)
        if not isinstance(value, FakeTensor) and not wrapped:
            attach_constant(fake, value)
        return fake


def _move_graph(module: fx.GraphModule, convert: Callable[[Any], Any]) -> None:
    """Rewrite one graph for the fake GPU, in place."""
    for node in list(module.graph.nodes):
        if node.target is _ATEN._assert_tensor_metadata.default:
            module.graph.erase_node(node)  # it asserts the device, too
            continue
        if node.target is _ATEN.view.default:
            # Strides on a CPU may allow views that strides on a GPU do not.
            node.target = _ATEN.reshape.default
        if "device" in node.kwargs:
            node.kwargs = {**node.kwargs, "device": DEVICE}
        node.args = pytree.tree_map(_move_argument, node.args)
        if "val" in node.meta:
            node.meta["val"] = pytree.tree_map(convert, node.meta["val"])
    for name, value in list(vars(module).items()) + list(module._buffers.items()):
        if isinstance(value, torch.Tensor):
            setattr(module, name, convert(value))
    module.recompile()


def _move_argument(argument: Any) -> Any:
    return DEVICE if isinstance(argument, torch.device) else argument


def lift_mutations(exported: ExportedProgram) -> fx.GraphModule:
    """Return the graph module whose inputs are weights, buffers, constants and inputs.

    The graph writes buffer and input mutations back itself, as in the graph that
    AOTInductor lowers; only the user outputs remain as outputs.
    """
    module: fx.GraphModule = exported.graph_module
    signature = exported.graph_signature
    graph = module.graph
    placeholders = {n.name: n for n in graph.nodes if n.op == "placeholder"}
    by_target = {
        spec.target: placeholders[spec.arg.name]
        for spec in signature.input_specs
        if spec.target and hasattr(spec.arg, "name")
    }
    (output,) = graph.find_nodes(op="output")
    outputs = []
    with graph.inserting_before(output):
        for spec, value in zip(signature.output_specs, output.args[0], strict=True):
            if spec.kind in _MUTATIONS:
                dest = by_target.get(spec.target) or placeholders[str(spec.target)]
                graph.call_function(_ATEN.copy_.default, (dest, value))
            elif spec.kind is OutputKind.USER_OUTPUT:
                outputs.append(value)
    output.args = (tuple(outputs),)
    module.recompile()
    return module


@contextlib.contextmanager
def run_fakes_on_device() -> Iterator[None]:
    """Run the fake kernels of custom operators under their first tensor's device.

    Otherwise a fake kernel that calls ``torch.empty(n)`` would return a CPU tensor.
    """
    entries = list(cuda_api.simple_registry.singleton._data.values())
    holders = [e.fake_impl for e in entries if e.fake_impl.kernel is not None]
    for holder in holders:
        fake = holder.kernel
        holder.kernels.append(cuda_api.Kernel(_OnDevice(fake.func), fake.source))
    try:
        yield
    finally:
        for holder in holders:
            holder.kernels.pop()


class _OnDevice:
    """Wraps a fake kernel to run under the device of its first tensor argument."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        leaves = pytree.tree_leaves((args, kwargs))
        tensors = (leaf for leaf in leaves if isinstance(leaf, torch.Tensor))
        first = next(tensors, None)
        if first is None:
            return self._function(*args, **kwargs)
        with torch.device(first.device):
            return self._function(*args, **kwargs)
