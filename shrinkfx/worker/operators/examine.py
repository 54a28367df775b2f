"""Checks of custom operators against their schemas and fake kernels.

A compiler relies on the schema and on the fake kernel. Therefore this module runs the
program in eager, at its own sizes and at others that it declares, and checks each call
of a custom operator: whether it writes to arguments or returns their memory without
declaring so (``test_schema`` of ``torch.library.opcheck``), and whether the result
matches its current fake kernel (``test_faketensor``). It then calls the operator again
to see what else its values depend on. In contrast, ``eager/fake_mismatch.py`` compares
with the metadata in the program's file. A finding states only what was observed.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.utils.deterministic
from torch import Tensor, fx
from torch.export import ExportedProgram
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from shrinkfx.program.display_text import first_line
from shrinkfx.program.pytorch_names import PYTORCH_NAMESPACES
from shrinkfx.program.sizes import sizes_near_export
from shrinkfx.protocol.answers import Examined
from shrinkfx.protocol.operators import Misbehavior, OperatorFinding
from shrinkfx.protocol.requests import Examine, ExamineCandidate
from shrinkfx.worker.eager.fake_mismatch import (
    describe_tensor,
    has_declared_strides,
    has_declared_type,
    runs_a_subgraph,
)
from shrinkfx.worker.eager.inputs_at import make_inputs_at
from shrinkfx.worker.eager.intermediates import (
    FILLINGS,
    SEED,
    copy_to_filled_memory,
    copy_value,
    has_own_memory,
    span,
)
from shrinkfx.worker.model import Inputs, Keywords, Program, flat_inputs
from shrinkfx.worker.origin import graphs_of
from shrinkfx.worker.private_api import graph_api, operator_api
from shrinkfx.worker.private_api.graph_api import FakeTensorMode, pytree
from shrinkfx.worker.sizes.read_space import find_space

_MOST_BYTES = 1 << 28
"""Larger arguments are not copied, so writes to them go undetected."""


class OutOfTime(Exception):
    """The time limit of the examination is over."""


class _EagerEnds(Exception):
    """The program raises an exception in eager."""


def examine(program: Program, task: Examine, at: Path) -> Examined:
    """Examine the program at its own sizes, then at others.

    Args:
        task: the file for findings, and the time limit.
        at: a file for the name of the running operator.

    Returns:
        The custom operators that were checked, and whether time ran out.
    """
    return examine_runs(program.original, _runs(program), task, at)


def examine_runs(
    exported: ExportedProgram,
    runs: Iterable[Inputs],
    task: Examine | ExamineCandidate,
    at: Path,
) -> Examined:
    """Examine a program on some inputs; see ``examine``."""
    deadline = time.monotonic() + task.seconds
    examination = Examination(exported, Path(task.findings), at, deadline)
    timed_out = False
    try:
        for inputs in runs:
            examination.run(inputs)
    except OutOfTime:
        timed_out = True
    return Examined(tuple(sorted(examination.operators)), timed_out)


def _runs(program: Program) -> Iterator[Inputs]:
    """Yield the program's own inputs, then inputs of other declared sizes."""
    yield program.failing
    space = find_space(program.original, program.failing)
    for sizes in sizes_near_export(space):
        yield make_inputs_at(program, space.named(sizes), SEED, None)


@dataclass
class Examination:
    """Runs a program on inputs, and writes findings as it goes.

    Attributes:
        findings: a file with one line of JSON per finding; each is written at once,
            because the next call may end this process.
        at: a file for the running operator and its arguments.
        deadline: the end of the time limit, in ``time.monotonic``.
    """

    exported: ExportedProgram
    findings: Path
    at: Path
    deadline: float
    operators: set[str] = field(default_factory=set)
    _found: set[tuple[str, str]] = field(default_factory=set)
    _promises: dict[tuple[fx.Node, int], ShapeHistory] = field(default_factory=dict)

    def run(self, inputs: Inputs) -> None:
        """Run the program in eager once, until it ends or raises an exception.

        An exception is no finding, because values for other sizes are made up.

        Raises:
            OutOfTime: the time limit is over before the program ends.
        """
        flat = flat_inputs(self.exported, inputs)
        torch.manual_seed(SEED)
        try:
            with torch.no_grad():
                _Observer(self, self.exported.graph_module).run(*map(_own, flat))
        except _EagerEnds as error:
            print(f"shrinkfx: eager ends: {error}", flush=True)

    def write_finding(self, node: fx.Node, what: Misbehavior, **facts: Any) -> None:
        """Write a finding, unless the operator has one of this kind already.

        Args:
            facts: other fields of ``OperatorFinding``.
        """
        operator = str(node.target)
        if (operator, what) not in self._found:
            self._found.add((operator, what))
            if what in (Misbehavior.FAKE, Misbehavior.FIXES):
                facts["fake_kernel"] = find_fake_kernel(node.target)
            finding = OperatorFinding(operator, what, node.name, **facts)
            with self.findings.open("a") as file:
                file.write(finding.to_line())

    def look(
        self, node: fx.Node, call: str, promised: Sequence[Any], real: Sequence[Any]
    ) -> None:
        """Compare the results of a fake kernel with the real results."""
        for place, (fake, value) in enumerate(zip(promised, real, strict=False)):
            if isinstance(fake, Tensor) and isinstance(value, Tensor):
                history = self._promises.setdefault((node, place), ShapeHistory())
                history.see(fake, value)
                dim = history.find_fixed_dim()
                if dim is None and not has_mismatch(fake, value):
                    continue
                self.write_finding(
                    node,
                    Misbehavior.FAKE if dim is None else Misbehavior.FIXES,
                    call=call,
                    place=place if len(real) > 1 else None,
                    declared=describe_tensor(fake, _known),
                    made=describe_tensor(value),
                    dim=dim or 0,
                )


def _known(size: Any) -> int | None:
    """Return a size that is a number; None for a size that depends on data."""
    return size if isinstance(size, int) else None


def _own(value: Any) -> Any:
    """Copy an argument that a call may change.

    Weights are not copied, because they may be large, and this process ends soon.
    """
    return value if isinstance(value, torch.nn.Parameter) else copy_value(value)


class _Observer(fx.Interpreter):
    """Checks each call of a custom operator."""

    def __init__(self, examination: Examination, module: fx.GraphModule) -> None:
        super().__init__(module)
        self._examination = examination

    def run_node(self, n: fx.Node) -> Any:
        if time.monotonic() > self._examination.deadline:
            raise OutOfTime
        if not is_custom(n):
            return self._observed(n, self._run(n))
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        tensors = list(iter_tensor_arguments(n.target, args, kwargs))
        description = describe_call(n.target, args, kwargs)
        promised = call_fake_kernel(n.target, args, kwargs)
        before = [
            copy_value(tensor) if _is_small(tensors) else None for _, tensor in tensors
        ]
        self._examination.at.write_text(f"{n.target} ({n.name}) {description}")
        try:
            value = self._run(n)
            dependencies = list(_find_dependencies(n.target, args, kwargs))
        finally:
            self._examination.at.write_text("")  # later crashes have another cause
        real = pytree.tree_leaves(value)
        effects = _find_undeclared_effects(n.target, tensors, before, real)
        for what, argument in effects:
            self._examination.write_finding(n, what, argument=argument)
        if isinstance(promised, str):
            facts = {"call": description, "error": promised}
            self._examination.write_finding(n, Misbehavior.FAKE, **facts)
        elif promised is not None:
            self._examination.look(n, description, promised, real)
        for what in dependencies:
            self._examination.write_finding(n, what, call=description)
        self._examination.operators.add(str(n.target))
        return value

    def _observed(self, n: fx.Node, value: Any) -> Any:
        if isinstance(value, fx.GraphModule) and all(map(runs_a_subgraph, n.users)):
            return _Observer(self._examination, value).run
        return value

    def _run(self, n: fx.Node) -> Any:
        try:
            return super().run_node(n)
        except OutOfTime:  # within a branch
            raise
        except Exception as error:  # made-up values may rightly be refused
            raise _EagerEnds(str(error)) from error


def _find_dependencies(
    target: Any, args: Sequence[Any], kwargs: Keywords
) -> Iterator[Misbehavior]:
    """Call the operator again, and yield what its results depend on.

    An exception is no finding, because the first call did return a result.
    """
    try:
        yield from find_hidden_dependencies(target, args, kwargs)
    except Exception as error:  # noqa: BLE001 - whatever the user's operator raises
        print(f"shrinkfx: {target}, called again: {error}", flush=True)


def _find_undeclared_effects(
    target: Any, tensors: list[ParameterTensor], before: list[Any], results: list[Any]
) -> Iterator[tuple[Misbehavior, str]]:
    """Yield the effects of a call on memory that the schema does not declare."""
    written = [tensor for argument, tensor in tensors if argument.written]
    for (argument, tensor), original in zip(tensors, before, strict=True):
        is_written = any(_share(tensor, other) for other in written)
        if original is not None and not is_written and not _is_same(original, tensor):
            yield Misbehavior.WRITES, argument.name
    if _declares_views(target):
        return
    outputs = [value for value in results if isinstance(value, Tensor)]
    for argument, tensor in tensors:
        if any(_share(value, tensor) for value in outputs):
            yield Misbehavior.SHARES, argument.name
    if any(_share(a, b) for a, b in itertools.combinations(outputs, 2)):
        yield Misbehavior.SHARES, ""


def _declares_views(target: Any) -> bool:
    return any(result.alias_info is not None for result in target._schema.returns)


def _is_small(tensors: list[ParameterTensor]) -> bool:
    return sum(t.numel() * t.element_size() for _, t in tensors) <= _MOST_BYTES


def _is_same(some: Tensor, other: Tensor) -> bool:
    if some.shape != other.shape or some.dtype != other.dtype:
        return False
    try:
        equal = (some == other) | ((some != some) & (other != other))
    except RuntimeError:  # float8 has few operators
        return True
    return bool(equal.all())


def _share(some: Tensor, other: Tensor) -> bool:
    if some.layout != torch.strided or not some.untyped_storage().nbytes():
        return False
    return some.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()


def find_fake_kernel(target: Any) -> str:
    """Return file and line of a fake kernel; '' if it is in no Python file.

    The location comes from the registries of ``torch/_library``: of
    ``torch.library.custom_op``, and of ``torch.library.register_fake``.
    """
    if operator_api.FEATURE.missing:
        return ""
    name = target.name().partition(".")[0]
    defined = operator_api.custom_ops.OPDEFS.get(name)
    code = getattr(getattr(defined, "_abstract_fn", None), "__code__", None)
    if code is not None:
        return f"{code.co_filename}:{code.co_firstlineno}"
    kernel = operator_api.simple_registry.singleton.find(name).fake_impl.kernel
    return str(kernel.source) if kernel is not None else ""


def call_fake_kernel(
    target: Any, args: Sequence[Any], kwargs: Keywords
) -> list[Any] | str | None:
    """Call the fake kernel of an operator at the sizes of real arguments.

    Returns:
        Its results; the text of the exception that it raises; None if the arguments
        have no fake counterparts.
    """
    mode = FakeTensorMode(shape_env=ShapeEnv())

    def fake(value: Any) -> Any:
        if isinstance(value, torch.ScriptObject):
            return operator_api.maybe_to_fake_obj(mode, value)
        if not isinstance(value, Tensor):
            return value
        return mode.from_tensor(value, static_shapes=True)

    try:
        faked = pytree.tree_map(fake, (tuple(args), kwargs))
    except Exception:  # noqa: BLE001 - no fault of the operator's
        return None
    try:
        with mode:
            return pytree.tree_leaves(target(*faked[0], **faked[1]))
    except Exception as error:  # noqa: BLE001 - whatever the user's kernel raises
        return f"{type(error).__name__}: {first_line(str(error)):.200}"


@dataclass
class ShapeHistory:
    """The fake and real shapes of one result, over several runs."""

    seen: list[tuple[list[Any], list[int]]] = field(default_factory=list)

    def see(self, fake: Tensor, real: Tensor) -> None:
        """Record the fake and the real shape in a run."""
        promised = [s if isinstance(s, int) else None for s in fake.shape]
        if fake.dim() == real.dim():
            self.seen.append((promised, list(real.shape)))

    def find_fixed_dim(self) -> int | None:
        """Return the dim that is fixed in the fake kernel but varies, or None."""
        for dim, size in enumerate(self.seen[-1][0] if self.seen else ()):
            declared = {promised[dim] for promised, _ in self.seen}
            actual = {real[dim] for _, real in self.seen}
            latest = self.seen[-1][1][dim]
            if size not in (None, latest) and len(declared) == 1 < len(actual):
                return dim
        return None


def has_mismatch(fake: Tensor, real: Tensor) -> bool:
    """Return whether a fake and a real result disagree.

    Dtype, device and sizes are compared, and the strides of dims longer than 1. Sizes
    that depend on data agree with any number.
    """
    if not fake.layout == real.layout == torch.strided:
        facts = [(t.dtype, t.device.type, t.dim(), t.layout) for t in (fake, real)]
        return facts[0] != facts[1]
    if not has_declared_type(fake, real, _known):
        return True
    return bool(real.numel()) and not has_declared_strides(fake, real, _known)


_RTOL = 1e-3
"""Tolerance relative to the largest value, because threads add in another order."""

_MOST_REPEATED_BYTES = 1 << 26
"""Operators with larger arguments are not called again."""


def find_hidden_dependencies(
    target: Any, args: Sequence[Any], kwargs: Keywords
) -> Iterator[Misbehavior]:
    """Call a functional operator again, and yield what its results depend on.

    If its results differ in each call, nothing else can be determined.

    Raises:
        Exception: the operator raises it.
    """
    if not _may_be_repeated(target, args, kwargs):
        return

    def call(place: Callable[[Any], Any]) -> list[Any]:
        copies = pytree.tree_map(place, (tuple(args), kwargs))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(SEED)
            return pytree.tree_leaves(target(*copies[0], **copies[1]))

    first, second = (call(_copy_among(FILLINGS[0])) for _ in range(2))
    with _fill_new_memory():
        filled = call(_copy_among(FILLINGS[0]))
    if any(map(_is_unfilled, first, filled)):
        yield Misbehavior.UNFILLED
    elif not _alike(first, second):
        yield Misbehavior.UNSTEADY
    else:
        if not _alike(first, call(_copy_among(FILLINGS[1]))):
            yield Misbehavior.STRAYS
        is_flexible = torch.Tag.flexible_layout in target.tags
        if is_flexible and not _alike(first, call(_relaid)):
            yield Misbehavior.LAYOUT


def _may_be_repeated(target: Any, args: Sequence[Any], kwargs: Keywords) -> bool:
    """Return whether the schema declares no writes and arguments are small."""
    tensors = list(iter_tensor_arguments(target, args, kwargs))
    leaves = pytree.tree_leaves((tuple(args), kwargs))
    return (
        not target._schema.is_mutable
        and not any(isinstance(leaf, torch.ScriptObject) for leaf in leaves)
        and sum(span(t) * t.itemsize for _, t in tensors) <= _MOST_REPEATED_BYTES
    )


def _copy_among(byte: int) -> Callable[[Any], Any]:
    """Return a function that copies a tensor to memory of known content."""
    return lambda value: (
        copy_to_filled_memory(value, byte) if has_own_memory(value) else value
    )


def _relaid(value: Any) -> Any:
    """Copy a tensor with other strides: contiguous, if it is not."""
    if not has_own_memory(value) or value.dim() < 2:
        return value
    if not value.is_contiguous():
        return value.contiguous()
    return value.transpose(0, -1).contiguous().transpose(0, -1)


@contextlib.contextmanager
def _fill_new_memory() -> Iterator[None]:
    """Make PyTorch fill new memory with NaN, or with the largest integer."""
    fill = torch.utils.deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
    enabled = torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = True  # type: ignore[attr-defined]
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(enabled, warn_only=warn_only)
        torch.utils.deterministic.fill_uninitialized_memory = fill  # type: ignore[attr-defined]


def _is_unfilled(value: Any, filled: Any) -> bool:
    """Return whether a result has the fill value only if memory was filled."""
    if not isinstance(value, Tensor) or not has_own_memory(filled):
        return False
    if value.shape != filled.shape or value.dtype != filled.dtype:
        return False
    if filled.is_floating_point() or filled.is_complex():
        return bool((filled.isnan() & ~value.isnan()).any())
    if filled.dtype == torch.bool:
        return False
    most = torch.iinfo(filled.dtype).max
    return bool(((filled == most) & (value != most)).any())


def _alike(some: Sequence[Any], others: Sequence[Any]) -> bool:
    return len(some) == len(others) and all(map(_is_like, some, others))


def _is_like(some: Any, other: Any) -> bool:
    if not (isinstance(some, Tensor) and isinstance(other, Tensor)):
        return True
    if some.shape != other.shape or some.dtype != other.dtype:
        return False
    if not has_own_memory(some) or not some.numel():
        return True
    if not (some.is_floating_point() or some.is_complex()):
        return torch.equal(some, other)
    kind = torch.complex128 if some.is_complex() else torch.float64
    some, other = some.to(kind), other.to(kind)
    finite = some.abs().nan_to_num(0.0, 0.0, 0.0)
    return torch.allclose(
        some, other, rtol=_RTOL, atol=_RTOL * float(finite.max()), equal_nan=True
    )


@dataclass(frozen=True)
class Parameter:
    """A parameter of a schema.

    Attributes:
        written: the schema declares that the operator changes it.
    """

    name: str
    written: bool


ParameterTensor = tuple[Parameter, Tensor]


def _given(
    target: Any, args: Sequence[Any], kwargs: Keywords
) -> Iterator[tuple[torch.Argument, Any]]:
    """Yield the parameters of a schema with their arguments, without defaults."""
    for position, parameter in enumerate(target._schema.arguments):
        if position < len(args):
            yield parameter, args[position]
        elif parameter.name in kwargs:
            yield parameter, kwargs[parameter.name]


def iter_tensor_arguments(
    target: Any, args: Sequence[Any], kwargs: Keywords
) -> Iterator[ParameterTensor]:
    """Yield the strided tensors among the arguments, including those in lists."""
    for parameter, value in _given(target, args, kwargs):
        alias = parameter.alias_info
        argument = Parameter(parameter.name, alias is not None and alias.is_write)
        for leaf in pytree.tree_leaves(value):
            if isinstance(leaf, Tensor) and leaf.layout == torch.strided:
                yield argument, leaf


def describe_call(target: Any, args: Sequence[Any], kwargs: Keywords) -> str:
    """Describe the arguments of a call: layouts of tensors, and short values.

    ``when called with q=float32[2, 8], heads=2``: defaults are left out, as in the
    call, and so are the strides of contiguous tensors.
    """
    shapes, values = [], []
    for parameter, value in _given(target, args, kwargs):
        name, leaves = parameter.name, pytree.tree_leaves(value)
        tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        shapes += [f"{name}={_layout_in_words(tensor)}" for tensor in tensors]
        if not tensors:
            values.append(f"{name}={_value_in_words(value)}")
    more = ["..."] if len(shapes) > _NAMED else []
    return f"when called with {', '.join([*shapes[:_NAMED], *more, *values])}"


def _layout_in_words(tensor: Tensor) -> str:
    is_strided = tensor.layout == torch.strided and not tensor.is_contiguous()
    strides = f" with strides {[*tensor.stride()]}" if is_strided else ""
    dtype = str(tensor.dtype).removeprefix("torch.")
    return f"{dtype}{[*tensor.shape]}{strides}"


def _value_in_words(value: Any) -> str:
    """Print a short value; of strings only identifiers, as others may be secrets."""
    texts = [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, str)]
    text = repr(value)
    is_shown = len(text) <= _SHORT and all(t.isidentifier() for t in texts if t)
    return text if is_shown else "..."


_NAMED = 4
"""Maximal number of tensors to describe."""

_SHORT = 30
"""Maximal number of characters of a printed value."""


def custom_operators(exported: ExportedProgram) -> list[str]:
    """List the operators of a program that are not PyTorch's own."""
    graphs = graphs_of(exported.graph_module).values()
    nodes = (node for graph in graphs for node in graph.nodes)
    return sorted({str(node.target) for node in nodes if is_custom(node)})


def is_custom(node: fx.Node) -> bool:
    """Return whether a node calls an operator whose schema is not PyTorch's own."""
    target = node.target
    if (
        not isinstance(target, graph_api.OpOverload)
        or target.namespace in PYTORCH_NAMESPACES
    ):
        return False
    # Composite operators have no fake kernel, because they are decomposed.
    return not target.has_kernel_for_dispatch_key(_COMPOSITE)


_COMPOSITE = graph_api.DispatchKey.CompositeImplicitAutograd
