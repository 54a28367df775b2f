"""Eager runs of programs, and their values, which are stored for cuts."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram

from shrinkfx.errors import LoadError
from shrinkfx.program.listing.tensor_specs import storage_span
from shrinkfx.protocol.operators import FakeMismatch
from shrinkfx.worker.disk_space import require_space_for_values
from shrinkfx.worker.eager.fake_mismatch import MismatchRecorder, Watcher
from shrinkfx.worker.loading.script_objects import (
    copy_script_object,
    copy_script_objects,
)
from shrinkfx.worker.model import (
    Inputs,
    Program,
    Views,
    flat_inputs,
    shared_weights,
    weights_of,
)
from shrinkfx.worker.private_api.graph_api import pytree
from shrinkfx.worker.sizes.bindings import bind_symbols

SEED = 0
_EXAMPLE, _PASSING, _FAILING = "example", "passing", "failing"
_SCALARS = "scalars.json"

Scalar = bool | int | float
"""A number that an operator such as ``item`` read from a tensor."""


@dataclass(frozen=True)
class RunRecord:
    """The outcome of an eager run.

    Attributes:
        error: the exception on the failing inputs, or ''; values up to there are
            stored.
        stopped: the node that raised it.
        mismatches: the fake-kernel mismatches.
    """

    error: str = ""
    stopped: str = ""
    mismatches: tuple[FakeMismatch, ...] = ()


class EagerValues:
    """All values of the input program's eager runs, on disk and mapped on demand.

    There are up to three runs: on the example inputs, which build a program, and on the
    failing and the passing inputs, which run it.
    """

    def __init__(self, folder: Path, program: Program) -> None:
        self._folder, self._views = folder, Views(program.graph)
        self._runs = {_EXAMPLE: program.example}
        if program.passing:
            self._runs[_PASSING] = program.passing
        if program.failing is not program.example:
            self._runs[_FAILING] = program.failing
        self._folders = [folder / name for name in self._runs]

    def record(self, program: Program, at: Path | None = None) -> RunRecord:
        """Run the program, and store the result of each node.

        Args:
            at: a file for the name of the running operator, because it may kill this
                process.

        Raises:
            LoadError: there is too little disk space.
        """
        require_space_for_values(program.graph, len(self._runs), self._folder.parent)
        runs = [
            _Recorder(program.graph, self._folder / name, at).go(inputs)
            for name, inputs in self._runs.items()
        ]
        # An error of the example run is not reported: only its values are missing.
        mismatches = (mismatch for run in runs for mismatch in run.mismatches)
        return replace(runs[-1], mismatches=tuple(dict.fromkeys(mismatches)))

    def example(self, name: str) -> torch.Tensor:
        return self._load(self._folder / _EXAMPLE, name)

    def failing(self, name: str) -> torch.Tensor:
        return self._load(self._folders[-1], name)

    def passing(self, name: str) -> torch.Tensor:
        return self._load(self._folder / _PASSING, name)

    def _load(self, folder: Path, name: str) -> torch.Tensor:
        path = folder / f"{name}.pt"
        value = torch.load(path, mmap=True, weights_only=True)
        if isinstance(value, dict):
            return self._views.read(value)
        assert isinstance(value, torch.Tensor)
        return value

    def scalar(self, name: str) -> Scalar | None:
        """Return a number that all runs agree on, or None."""
        numbers = [_scalars(folder).get(name) for folder in self._folders]
        return numbers[0] if all(n == numbers[0] for n in numbers) else None

    def explain_no_cut(self, name: str) -> str:
        """Return the reason why the program cannot be cut at a value, or ''.

        If the real dtype, shape or device of a value differs from the metadata, an
        operator has a fake-kernel mismatch. This operator must stay in the candidate,
        because a candidate that is fed with the value would just have invalid inputs.
        """
        for folder in self._folders:
            if not (folder / f"{name}.pt").exists():
                return f"eager did not compute {name}"
            mismatch = folder / f"{name}.lie"
            if mismatch.exists():
                return mismatch.read_text()
        return ""


class _Recorder(Watcher):
    """Stores the result of each node."""

    def __init__(
        self, exported: ExportedProgram, folder: Path, progress_file: Path | None
    ) -> None:
        super().__init__(exported.graph_module, MismatchRecorder())
        self._exported = exported
        self._progress_file = progress_file
        self._folder = folder
        self._scalars: dict[str, Scalar] = {}
        self._current_name = ""
        self._has_invalid_inputs = False  # inputs that contradict the metadata
        self._weights = weights_of(exported)
        self._views = Views(exported)
        folder.mkdir(parents=True, exist_ok=True)

    def go(self, inputs: Inputs) -> RunRecord:
        error = self._run(inputs)
        stopped = self._current_name if error else ""
        return RunRecord(error, stopped, tuple(self.mismatches.found))

    def _run(self, inputs: Inputs) -> str:
        flat = flat_inputs(self._exported, inputs)
        self.mismatches.sizes = bind_symbols(self._exported, flat)
        try:
            run_graph(self, self._exported, inputs)
        except LoadError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever the user's program raises
            return f"{type(error).__name__}: {error}"
        finally:
            (self._folder / _SCALARS).write_text(json.dumps(self._scalars))
            if self._has_invalid_inputs:
                self.mismatches.clear()  # the operators are not to blame
        return ""

    def run_node(self, n: fx.Node) -> Any:
        self._current_name = n.name
        if self._progress_file and n.op == "call_function":
            self._progress_file.write_text(f"{n.target} ({n.name})")
        value = super().run_node(n)
        if isinstance(value, torch.Tensor) and n.op != "output":
            if n.name not in self._weights:
                self._store(n.name, value)
            if n in self.mismatches.untrue and n.op == "placeholder":
                self._has_invalid_inputs = True
            elif n in self.mismatches.untrue:
                mismatch = self.mismatches.describe(n, value)
                (self._folder / f"{n.name}.lie").write_text(mismatch.text)
        elif isinstance(value, (bool, int, float)):
            self._scalars[n.name] = value
            if n.op == "placeholder" and isinstance(n.meta.get("val"), torch.SymInt):
                # AOTI takes only tensors, so the length of one is the number.
                self._store(n.name, torch.zeros(int(value), dtype=torch.bool))
        return value

    def _store(self, name: str, value: torch.Tensor) -> None:
        path = self._folder / f"{name}.pt"
        try:
            torch.save(self._views.state(value) or compact(value.detach()), path)
        except (OSError, RuntimeError) as error:
            advice = "free some space, or set TMPDIR to a folder that has more"
            reason = f"the eager values cannot be stored: {error}"
            raise LoadError(str(path.parent), reason, advice) from error


def _scalars(folder: Path) -> dict[str, Scalar]:
    numbers: dict[str, Scalar] = json.loads((folder / _SCALARS).read_text())
    return numbers


def compact(tensor: torch.Tensor) -> torch.Tensor:
    """Copy a view that keeps a larger storage alive, with its strides."""
    if tensor.untyped_storage().nbytes() <= 2 * tensor.numel() * tensor.element_size():
        return tensor
    return restride(tensor, tensor.stride())


def restride(tensor: torch.Tensor, stride: Sequence[int]) -> torch.Tensor:
    """Copy a tensor's values into memory laid out with ``stride``."""
    layout = list(zip(tensor.shape, stride, strict=True))
    if any(step == 0 and size > 1 for size, step in layout):
        # Expanded: elements share memory and can't be written one by one.
        narrow = tensor
        for dim, (size, step) in enumerate(layout):
            narrow = narrow.narrow(dim, 0, 1) if step == 0 and size > 1 else narrow
        return restride(narrow, stride).expand(tensor.shape)
    result = torch.empty_strided(
        tuple(tensor.shape), tuple(stride), dtype=tensor.dtype, device=tensor.device
    )
    return result.copy_(tensor)


def span(tensor: torch.Tensor) -> int:
    """Count the elements of memory from the tensor's first element to its last."""
    return storage_span(tensor.shape, tensor.stride())


def copy_value(value: Any) -> Any:
    """Copy a tensor with its strides, or a script object; return others unchanged.

    ``clone`` keeps strides only where memory is dense, and compiled code that expects a
    view with gaps would read past the end of the copy. The content of gaps is copied,
    too, so that code that reads there gets the same values as in a script.
    """
    if isinstance(value, torch.ScriptObject):
        return copy_script_object(value)
    if not isinstance(value, torch.Tensor):
        return value
    value = value.detach()
    if value.is_conj() or value.is_neg() or value.layout is not torch.strided:
        return restride(value, value.stride())
    memory = value.as_strided((span(value),), (1,))
    return memory.clone().as_strided(value.shape, value.stride(), 0)


def call(
    function: Callable[..., Any], inputs: Inputs, *, seed: int = SEED
) -> list[Any]:
    """Call a function with fresh copies of inputs, under a seed; flatten results."""
    args, kwargs = pytree.tree_map(copy_value, (inputs.args, inputs.kwargs))
    torch.manual_seed(seed)
    with torch.no_grad():
        return pytree.tree_leaves(function(*args, **kwargs))


def call_often(
    function: Callable[..., Any], inputs: Inputs, calls: int, *, seed: int = SEED
) -> list[Any]:
    """Call a function repeatedly, as ``call`` does; return the last results."""
    for _ in range(calls):
        results = call(function, inputs, seed=seed)
    return results


def copy_run_inputs(exported: ExportedProgram, flat: Sequence[Any]) -> list[Any]:
    """Copy the inputs of a graph, so that a run does not change them.

    Weights that no operator writes are not copied, because they may be gigabytes.
    """
    shared = shared_weights(exported)
    names = (node.name for node in exported.graph.find_nodes(op="placeholder"))
    pairs = zip(names, flat, strict=True)
    return [value if name in shared else copy_value(value) for name, value in pairs]


def run_graph(
    interpreter: fx.Interpreter, exported: ExportedProgram, inputs: Inputs
) -> Any:
    """Run a program in an interpreter of its graph, under the seed, without changes."""
    torch.manual_seed(SEED)
    with torch.no_grad():
        flat = flat_inputs(exported, inputs)
        return interpreter.run(*copy_run_inputs(exported, flat))


def run_eager(
    exported: ExportedProgram,
    inputs: Inputs,
    *,
    seed: int,
    calls: int = 1,
    memory: int | None = None,
) -> list[Any]:
    """Call a program in eager, and restore its buffers afterwards.

    Sizes out of the declared ranges are not refused, because the question may be
    whether compiled code refuses them.

    Args:
        calls: the number of calls; a program that changes its buffers may need several.
        memory: the content of ``empty`` and the like: 0 for zeros, another number for
            values that no program expects, None for uninitialized memory.

    Returns:
        The results of the last call, as copies, because a program may return its
        buffer.
    """
    names = exported.graph_signature.inputs_to_buffers.values()
    stores = (exported.state_dict, exported.constants)
    buffers = [store[name] for store in stores for name in names if name in store]
    before = [copy_value(buffer) for buffer in buffers]
    with copy_script_objects(exported):
        module = exported.module(check_guards=False)
    module._forward_pre_hooks.clear()  # they compare inputs with the ranges
    if memory is not None:
        fill_uninitialized(module, memory)
    try:
        return [copy_value(v) for v in call_often(module, inputs, calls, seed=seed)]
    finally:
        with torch.no_grad():
            for buffer, value in zip(buffers, before, strict=True):
                buffer.copy_(value)


FILLINGS = (0x00, 0x5A)
"""Fill bytes. Zeros are valid indices and the content of fresh memory; bytes of 0x5a
make large numbers of any dtype, and no NaN."""

PADDING = 4096
"""Bytes around a copy, because vector code may read a little further."""


def has_own_memory(value: Any) -> bool:
    """Return whether a value is a tensor whose elements are in memory as they are."""
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return False
    return not (value.is_quantized or value.is_conj() or value.is_neg())


def copy_to_filled_memory(
    value: torch.Tensor, byte: int, *, before: int = PADDING, declared: int = 0
) -> torch.Tensor:
    """Copy a tensor, with its strides, into memory whose other bytes are all ``byte``.

    Args:
        before: the number of bytes before the copy.
        declared: the number of bytes that a reader may take for the tensor's own.
    """
    nbytes = span(value) * value.itemsize
    length = before + max(nbytes, declared) + PADDING
    memory = torch.empty(length, dtype=torch.uint8, device=value.device).fill_(byte)
    copy = memory[before : before + nbytes].view(value.dtype)
    copy.copy_(value.as_strided((span(value),), (1,)))
    return copy.as_strided(value.shape, value.stride())


# Uninitialized memory in eager runs.
#
# A mixture of experts fills ``empty_like`` by ``index_put``. If a candidate cuts the
# ``index_put``, it returns uninitialized memory: eager and compiled results differ,
# although there is no bug. Therefore two eager runs fill the memory: one with 0, the
# other with a number that no program expects. Elements that differ between the runs
# are not compared, as with random numbers; if they are indices, eager raises an
# exception. Branches and loop bodies are not filled.

_aten = torch.ops.aten
_ALLOCATORS = frozenset(
    {
        _aten.empty.memory_format,
        _aten.empty_like.default,
        _aten.empty_permuted.default,
        _aten.empty_strided.default,
        _aten.new_empty.default,
        _aten.new_empty_strided.default,
    }
)


def fill_uninitialized(module: torch.nn.Module, number: int) -> None:
    """Make a program's main graph fill uninitialized memory.

    Args:
        number: 0 for zeros; any other number for values that no program expects.
    """
    if not isinstance(module, fx.GraphModule):
        return
    nodes = [n for n in module.graph.nodes if n.target in _ALLOCATORS]
    for node in nodes:
        filled = functools.partial(_filled, node.target, number)
        # fx generates code with the name of the function.
        node.target = functools.update_wrapper(filled, _filled)
    if nodes:
        module.recompile()


def _filled(
    function: Callable[..., torch.Tensor], number: int, *args: Any, **kwargs: Any
) -> torch.Tensor:
    tensor = function(*args, **kwargs)
    return tensor.fill_(_far(tensor.dtype) if number else 0)


def _far(dtype: torch.dtype) -> float:
    """Return a value that no program expects: NaN, an extreme integer, or True."""
    if dtype == torch.bool:
        return 1
    if dtype.is_floating_point or dtype.is_complex:
        return math.nan
    limits = torch.iinfo(dtype)
    return limits.min // 2 or limits.max


_NARROW = (torch.float32, torch.float16, torch.bfloat16)


def widen(tensor: torch.Tensor) -> torch.Tensor:
    """Convert to the widest dtype of its kind; integers are compared as int64."""
    if tensor.is_quantized:
        tensor = tensor.dequantize()
    if tensor.is_complex():
        return tensor.to(torch.complex128)
    if tensor.is_floating_point():
        return tensor.to(torch.float64)
    return tensor.to(torch.int64)


def to_float64(value: Any) -> Any:
    """Convert a floating-point tensor to float64; return others unchanged."""
    if isinstance(value, torch.Tensor) and value.is_floating_point():
        return value.to(torch.float64)
    return value


def to_float32(value: Any) -> Any:
    """Convert a float64 tensor or dtype to float32; return others unchanged."""
    if isinstance(value, torch.Tensor) and value.dtype == torch.float64:
        return value.to(torch.float32)
    return torch.float32 if value is torch.float64 else value


def widen_dtype(value: Any) -> Any:
    """Replace a narrow floating-point dtype by float64; return others unchanged."""
    narrow = isinstance(value, torch.dtype) and value in _NARROW
    return torch.float64 if narrow else value


def rounding_bound(expected: torch.Tensor, exact: torch.Tensor) -> torch.Tensor:
    """Bound the rounding error of each element of an eager result.

    Floating-point results have one bound for all elements, because among many elements
    some are exact by chance: ten times the error that nine in ten of the inexact
    elements stay within, or five times the largest error, whichever is more. The bound
    of an integer is ten times its own error.

    Results that only round differently stay within the bound. Of 194,256 elements of
    results of twelve architectures in bfloat16 and float16, none was beyond it; one in
    fourteen was beyond ten times its own error (``benchmarks/rounding.py``).

    Args:
        expected: the eager result.
        exact: the result of a float64 run, of the same shape.

    Returns:
        A bound for each element, infinite where one of the two overflows.
    """
    error = (widen(expected) - widen(exact)).abs().nan_to_num(0.0, posinf=torch.inf)
    if not (expected.is_floating_point() or expected.is_complex()):
        return _INTEGER_FACTOR * error
    inexact = error[error.isfinite() & (error > 0)]
    if not inexact.numel():
        return error  # nothing, or infinite
    quantile = inexact.kthvalue(math.ceil(_QUANTILE * inexact.numel())).values
    bound = torch.maximum(_QUANTILE_FACTOR * quantile, _LARGEST_FACTOR * inexact.max())
    return error.where(error.isinf(), bound)


_INTEGER_FACTOR = _QUANTILE_FACTOR = 10
_LARGEST_FACTOR = 5
_QUANTILE = 0.9


def mark_beyond_rounding(
    actual: torch.Tensor,
    expected: torch.Tensor,
    exact: torch.Tensor,
    tolerance: tuple[float, float],
) -> torch.Tensor:
    """Mark the elements that rounding cannot explain.

    Those are elements where |actual - expected| is more than rtol |expected| + the
    larger of atol and the bound, or where only one of both is a number. Eager's NaN
    counts as rounding if ``actual`` is close to ``exact``. If ``exact`` is not finite
    where eager is, rounding decides what is finite, and only numbers are marked.

    Args:
        tolerance: rtol and atol.
    """
    rtol, atol = tolerance
    a, e = widen(actual), widen(expected)
    size = e.abs().nan_to_num(0.0, posinf=0.0)
    slack = rtol * size + rounding_bound(expected, exact).clamp(min=atol)
    is_beyond = (a - e).abs().nan_to_num(torch.inf) > slack
    is_exact = e.isnan() & torch.isclose(a, widen(exact), rtol=rtol, atol=atol)
    marked = (is_beyond & ~is_exact) | (~a.isfinite() & e.isfinite())
    is_unstable = bool((e.isfinite() & ~widen(exact).isfinite()).any())
    return marked & a.isfinite() if is_unstable else marked
