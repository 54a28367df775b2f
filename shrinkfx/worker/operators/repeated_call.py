"""Repeated calls of an operator: what its result depends on besides its arguments.

An operator that reads past the end of an argument, or does not fill its result, returns
whatever memory holds. Compiled code is compared with eager, so eager must be
reproducible. Each call gets copies of the arguments, in memory of known content.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.utils.deterministic
from torch import Tensor, fx
from torch.export import ExportedProgram

from shrinkfx.program.skeleton import PYTORCH_NAMESPACES
from shrinkfx.protocol.operators import Misbehavior
from shrinkfx.worker.eager.intermediates import SEED, span
from shrinkfx.worker.model import Keywords
from shrinkfx.worker.private_api import graph_api
from shrinkfx.worker.private_api.graph_api import pytree

_PADDING = 4096
"""Bytes before and after each argument."""

_FILLINGS = (0x00, 0x5A)
"""Bytes around arguments: zeros, and large numbers of any dtype, not NaN."""

_RTOL = 1e-3
"""Tolerance relative to the largest value, because threads add in another order."""

_MOST_BYTES = 1 << 26
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

    first, second = (call(_copy_among(_FILLINGS[0])) for _ in range(2))
    with _fill_new_memory():
        filled = call(_copy_among(_FILLINGS[0]))
    if any(map(_is_unfilled, first, filled)):
        yield Misbehavior.UNFILLED
    elif not _alike(first, second):
        yield Misbehavior.UNSTEADY
    else:
        if not _alike(first, call(_copy_among(_FILLINGS[1]))):
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
        and sum(span(t) * t.itemsize for _, t in tensors) <= _MOST_BYTES
    )


def _copy_among(byte: int) -> Callable[[Any], Any]:
    """Return a function that copies a tensor, with its strides.

    The bytes before and after the copy all have the value ``byte``.
    """

    def place(value: Any) -> Any:
        if not _is_plain(value):
            return value
        length = span(value) * value.itemsize
        memory = torch.empty(
            length + 2 * _PADDING, dtype=torch.uint8, device=value.device
        ).fill_(byte)
        copy = memory[_PADDING : _PADDING + length].view(value.dtype)
        copy.copy_(value.as_strided((span(value),), (1,)))
        return copy.as_strided(value.shape, value.stride())

    return place


def _relaid(value: Any) -> Any:
    """Copy a tensor with other strides: contiguous, if it is not."""
    if not _is_plain(value) or value.dim() < 2:
        return value
    if not value.is_contiguous():
        return value.contiguous()
    return value.transpose(0, -1).contiguous().transpose(0, -1)


def _is_plain(value: Any) -> bool:
    if not isinstance(value, Tensor) or value.layout is not torch.strided:
        return False
    return not (value.is_quantized or value.is_conj() or value.is_neg())


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
    if not isinstance(value, Tensor) or not _is_plain(filled):
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
    if not _is_plain(some) or not some.numel():
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
    """Describe the arguments of a call: sizes of tensors, and short values.

    ``for q of shape [2, 8], k of shape [2, 8], heads=2``: defaults are left out, as in
    the call.
    """
    shapes, values = [], []
    for parameter, value in _given(target, args, kwargs):
        name, leaves = parameter.name, pytree.tree_leaves(value)
        tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        shapes += [f"{name} of shape {list(tensor.shape)}" for tensor in tensors]
        if not tensors:
            values.append(f"{name}={_value_in_words(value)}")
    more = ["..."] if len(shapes) > _NAMED else []
    return f"for {', '.join([*shapes[:_NAMED], *more, *values])}"


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
    return sorted(
        {
            str(node.target)
            for module in exported.graph_module.modules()
            if isinstance(module, fx.GraphModule)
            for node in module.graph.nodes
            if is_custom(node)
        }
    )


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
