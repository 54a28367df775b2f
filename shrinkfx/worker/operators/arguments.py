"""Calls of operators: arguments by schema, and whether an operator is custom."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx
from torch.export import ExportedProgram

from shrinkfx.program.skeleton import PYTORCH_NAMESPACES
from shrinkfx.worker.model import Keywords
from shrinkfx.worker.private_api import graph_api
from shrinkfx.worker.private_api.graph_api import pytree


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
