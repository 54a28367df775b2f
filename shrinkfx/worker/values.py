"""Eager values: kept for cuts, and compared with what the compiled code gave."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import sympy
import torch
from torch import fx
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from shrinkfx.worker.load import Inputs, Program

SEED = 0
_EXAMPLE, _FAILING = "example", "failing"


class Values:
    """Every value of the original's eager runs, on disk and mapped on demand.

    Two runs may be kept: on the example inputs, which build a program, and on
    the failing ones, which run it.
    """

    def __init__(self, folder: Path, program: Program) -> None:
        self._folder = folder
        self.two_sets = program.failing is not program.example

    def record(self, program: Program) -> str:
        """Run the program and keep what each node yields.

        Returns:
            '' or the error at which eager stopped; values up to there are kept.
        """
        error = _Recorder(program.graph, self._folder / _EXAMPLE).go(program.example)
        if self.two_sets and not error:
            recorder = _Recorder(program.graph, self._folder / _FAILING)
            error = recorder.go(program.failing)
        return error

    def example(self, name: str) -> torch.Tensor:
        return _load(self._folder / _EXAMPLE, name)

    def failing(self, name: str) -> torch.Tensor:
        return _load(self._folder / (_FAILING if self.two_sets else _EXAMPLE), name)

    def why_not(self, name: str) -> str:
        """Say why a value may not be cut at, or ''.

        A value whose real dtype, shape or device is not what the program's
        metadata says comes from an operator that lies. The liar must stay
        inside: a candidate fed with such a value would only have bad inputs.
        """
        for folder in (_EXAMPLE, _FAILING) if self.two_sets else (_EXAMPLE,):
            if not (self._folder / folder / f"{name}.pt").exists():
                return f"eager did not yield {name}"
            lie = self._folder / folder / f"{name}.lie"
            if lie.exists():
                return lie.read_text()
        return ""


class _Recorder(fx.Interpreter):
    def __init__(self, exported: ExportedProgram, folder: Path) -> None:
        super().__init__(exported.graph_module)
        self._exported = exported
        self._folder = folder
        self._sizes: Sizes = {}
        folder.mkdir(parents=True, exist_ok=True)

    def go(self, inputs: Inputs) -> str:
        flat = self._exported._graph_module_flat_inputs(inputs.args, inputs.kwargs)
        self._sizes = bind(self._exported, flat)
        torch.manual_seed(SEED)
        try:
            with torch.no_grad():
                self.run(*(copy_of(v) for v in flat))
        except Exception as error:  # noqa: BLE001 - whatever the user's program raises
            return f"{type(error).__name__}: {error}"
        return ""

    def run_node(self, n: fx.Node) -> Any:
        value = super().run_node(n)
        if isinstance(value, torch.Tensor) and n.op != "output":
            fake = n.meta.get("val")
            torch.save(compact(value.detach()), self._folder / f"{n.name}.pt")
            if isinstance(fake, torch.Tensor) and (lie := self._lie(n, fake, value)):
                (self._folder / f"{n.name}.lie").write_text(lie)
        return value

    def _lie(self, n: fx.Node, fake: torch.Tensor, real: torch.Tensor) -> str:
        """Compare metadata; sizes that depend on data cannot lie."""
        said = [evaluate(size, self._sizes) for size in fake.shape]
        sizes = [
            real_size if size is None else size
            for size, real_size in zip(said, real.shape, strict=False)
        ]
        same_rank = fake.dim() == real.dim()
        is_true = same_rank and sizes == list(real.shape) and fake.dtype == real.dtype
        if is_true and fake.device.type == real.device.type:
            return ""
        return (
            f"{n.name} ({n.target}) is {real.dtype}{list(real.shape)} on "
            f"{real.device}, its metadata says {fake.dtype}{said} on {fake.device}"
        )


Sizes = dict[Any, sympy.Integer]
"""What each symbol of a program stands for in one run."""


def bind(exported: ExportedProgram, flat: Sequence[Any]) -> Sizes:
    """Read the symbols off the flat inputs of a run."""
    sizes: Sizes = {}
    placeholders = [n for n in exported.graph.nodes if n.op == "placeholder"]
    for node, real in zip(placeholders, flat, strict=True):
        fake = node.meta.get("val")
        if not isinstance(fake, torch.Tensor) or not isinstance(real, torch.Tensor):
            continue
        for symbolic, size in zip(fake.shape, real.shape, strict=True):
            if isinstance(symbolic, torch.SymInt):
                sizes.setdefault(symbolic.node.expr, sympy.Integer(size))
    return sizes


def evaluate(size: int | torch.SymInt, sizes: Sizes) -> int | None:
    """Work out a size or stride, or None if it depends on data."""
    if isinstance(size, int):
        return size
    value = size.node.expr.xreplace(sizes)
    return int(value) if value.is_number else None


def _load(folder: Path, name: str) -> torch.Tensor:
    value = torch.load(folder / f"{name}.pt", mmap=True, weights_only=True)
    assert isinstance(value, torch.Tensor)
    return value


def compact(tensor: torch.Tensor) -> torch.Tensor:
    """Copy a view that holds on to a larger storage, strides kept."""
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
    laid = torch.empty_strided(
        tuple(tensor.shape), tuple(stride), dtype=tensor.dtype, device=tensor.device
    )
    return laid.copy_(tensor)


def copy_of(value: Any) -> Any:
    """Copy a tensor, strides kept; hand anything else back.

    ``clone`` keeps strides only where memory is dense, and compiled code that
    was promised a view with gaps would read past the end of the copy.
    """
    if not isinstance(value, torch.Tensor):
        return value
    return restride(value.detach(), value.stride())


def call(
    function: Callable[..., Any], inputs: Inputs, *, seed: int = SEED
) -> list[Any]:
    """Call with fresh copies of the inputs under a seed; flatten."""
    args, kwargs = pytree.tree_map(copy_of, (inputs.args, inputs.kwargs))
    torch.manual_seed(seed)
    with torch.no_grad():
        return pytree.tree_leaves(function(*args, **kwargs))


def run_eager(exported: ExportedProgram, inputs: Inputs, *, seed: int) -> list[Any]:
    """Call a program in eager and leave its buffers as they were."""
    names = exported.graph_signature.inputs_to_buffers.values()
    stores = (exported.state_dict, exported.constants)
    buffers = [store[name] for store in stores for name in names if name in store]
    before = [copy_of(buffer) for buffer in buffers]
    try:
        return call(exported.module(check_guards=False), inputs, seed=seed)
    finally:
        with torch.no_grad():
            for buffer, value in zip(buffers, before, strict=True):
                buffer.copy_(value)


def compare(
    actual: Sequence[Any],
    expected: Sequence[Any],
    again: Sequence[Any],
    exact: Callable[[], Sequence[Any] | None],
) -> dict[str, str]:
    """Find the first output that differs from eager; {} if there is none.

    Metadata of all outputs comes before the values of any.

    Args:
        again: a second eager run; elements that differ from the first are not
            compared.
        exact: a float64 run, asked for only when values differ; None where
            there is none. What eager itself gets wrong by a tenth of the
            difference is no bug.
    """
    if len(actual) != len(expected):
        text = f"{len(actual)} outputs, eager gives {len(expected)}"
        return {"what": "metadata", "text": text}
    for position, (a, e) in enumerate(zip(actual, expected, strict=True)):
        if text := _metadata_differs(a, e):
            return {"what": "metadata", "text": f"output {position}: {text}"}
    for position, (a, e, r) in enumerate(zip(actual, expected, again, strict=True)):
        if not isinstance(e, torch.Tensor) or e.numel() == 0:
            continue
        reference = exact() if _differs(a, e, r, None).any() else None
        wide = reference[position] if reference is not None else None
        wrong = _differs(a, e, r, wide)
        if wrong.any():
            return _describe_values(position, a, e, wrong)
    return {}


def _metadata_differs(actual: Any, expected: Any) -> str:
    if not isinstance(expected, torch.Tensor) or not isinstance(actual, torch.Tensor):
        same = type(actual) is type(expected)
        return "" if same else f"{type(actual).__name__}, not {type(expected).__name__}"
    for what in ("dtype", "shape", "device"):
        a, e = getattr(actual, what), getattr(expected, what)
        if a != e:
            return f"{what} {a}, eager gives {e}"
    return ""


def _differs(
    actual: torch.Tensor, expected: torch.Tensor, again: torch.Tensor, exact: Any
) -> torch.Tensor:
    """Mark the wrong elements."""
    stable = _stable(expected, again)
    rtol, atol = _tolerance(expected.dtype)
    a, e = _wide(actual), _wide(expected)
    wrong = ~torch.isclose(a, e, rtol=rtol, atol=atol, equal_nan=True) & stable
    if isinstance(exact, torch.Tensor) and exact.shape == e.shape:
        own_error = (e - _wide(exact)).abs().nan_to_num(0.0)
        far = (a - e).abs().nan_to_num(torch.inf) > 10 * own_error
        wrong &= far | (a.isfinite() != e.isfinite())
    return wrong


def _stable(expected: torch.Tensor, again: torch.Tensor) -> torch.Tensor:
    """Mark the elements that two eager runs agree on."""
    if expected.shape != again.shape:
        return torch.zeros_like(expected, dtype=torch.bool)
    return torch.isclose(_wide(expected), _wide(again), equal_nan=True)


def unstable(expected: Sequence[Any], again: Sequence[Any]) -> int:
    """Count the elements that two eager runs do not agree on."""
    return sum(
        int((~_stable(e, a)).sum())
        for e, a in zip(expected, again, strict=True)
        if isinstance(e, torch.Tensor)
    )


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.is_complex():
        return tensor.to(torch.complex128)
    return tensor.to(torch.float64)


def _tolerance(dtype: torch.dtype) -> tuple[float, float]:
    """Take torch.testing's tolerances for a dtype."""
    rtol, atol = torch.testing._comparison.default_tolerances(dtype)
    return rtol, atol


def _describe_values(
    position: int, actual: torch.Tensor, expected: torch.Tensor, wrong: torch.Tensor
) -> dict[str, str]:
    finite = _wide(expected).isfinite()
    born = (~_wide(actual).isfinite() & finite & wrong).any()
    first = tuple(int(i) for i in wrong.nonzero()[0])
    text = (
        f"output {position}: {int(wrong.sum())} of {wrong.numel()} elements differ, "
        f"the first at {list(first)}: {actual[first].item()}, "
        f"eager gives {expected[first].item()}"
    )
    return {"what": "nan" if born else "values", "text": text}


class InFloat64(fx.Interpreter):
    """Run a program with every float32 or narrower value in float64."""

    def run_node(self, n: fx.Node) -> Any:
        value = super().run_node(n)
        return pytree.tree_map(_to_float64, value)

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        args, kwargs = pytree.tree_map(_widen_dtype, (args, kwargs))
        return super().call_function(target, args, kwargs)

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        return _to_float64(super().get_attr(target, args, kwargs))


def in_float64(exported: ExportedProgram, inputs: Inputs) -> list[Any] | None:
    """Run a program in float64, or None where one of its operators refuses."""
    flat = exported._graph_module_flat_inputs(inputs.args, inputs.kwargs)
    torch.manual_seed(SEED)
    try:
        with torch.no_grad():
            wide = [_to_float64(copy_of(v)) for v in flat]
            outputs = InFloat64(exported.graph_module).run(*wide)
    except Exception:  # noqa: BLE001 - an operator without a float64 kernel
        return None
    user = exported.graph_signature.user_outputs
    mutated = len(outputs) - len(user)
    return pytree.tree_leaves(outputs[mutated:])


def _to_float64(value: Any) -> Any:
    if isinstance(value, torch.Tensor) and value.is_floating_point():
        return value.to(torch.float64)
    return value


def _widen_dtype(value: Any) -> Any:
    narrow = (torch.float32, torch.float16, torch.bfloat16)
    return (
        torch.float64 if value in narrow and isinstance(value, torch.dtype) else value
    )
