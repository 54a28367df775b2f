"""The inputs of a run: read from a file, and held against the program."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import sympy
import torch
from torch import fx
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from shrinkfx.errors import LoadError
from shrinkfx.worker.archive import disarmed


@dataclass(frozen=True)
class Inputs:
    """Arguments of one call, in the program's own structure."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def flat(self) -> list[Any]:
        leaves: list[Any] = pytree.tree_leaves((self.args, self.kwargs))
        return leaves


def read_inputs(path: str) -> Inputs:
    """Read what ``torch.save`` wrote, if it holds nothing but data.

    Raises:
        LoadError: it is something else.
    """
    try:
        with disarmed():
            data = torch.load(path, weights_only=True)
    except BaseException as error:
        # torch's own words go on to explain how to run what is in the file.
        text = str(error).strip().rpartition("WeightsUnpickler error: ")[2]
        reason = f"cannot be read: {text.partition(chr(10))[0].partition('. ')[0]:.200}"
        raise LoadError(path, reason, _ADVICE) from error
    return as_inputs(path, data)


_ADVICE = (
    "torch.save((arg, ...), file), or a dict with 'args' and 'kwargs', of tensors, "
    "numbers and strings"
)


def as_inputs(path: str, data: object) -> Inputs:
    """Take what a file holds or gives for the arguments of a call.

    Raises:
        LoadError: it is something else.
    """
    if isinstance(data, dict) and set(data) <= {"args", "kwargs"}:
        args, kwargs = data.get("args", ()), data.get("kwargs", {})
        if isinstance(args, (tuple, list)) and isinstance(kwargs, dict):
            return Inputs(tuple(args), dict(kwargs))
    if isinstance(data, (tuple, list)):
        return Inputs(tuple(data), {})
    raise LoadError(path, f"holds a {type(data).__name__}", _ADVICE)


def in_order_of(example: Inputs, given: Inputs) -> Inputs:
    """Put keyword arguments in the program's order, if they are the same."""
    if set(given.kwargs) != set(example.kwargs):
        return given
    return replace(given, kwargs={name: given.kwargs[name] for name in example.kwargs})


def require_same_structure(subject: str, example: Inputs, given: Inputs) -> None:
    """Refuse inputs of another number, nesting, dtype, dimension or device.

    Raises:
        LoadError: which, what it is, and what the program expects.
    """
    expected, spec = pytree.tree_flatten((example.args, example.kwargs))
    leaves, given_spec = pytree.tree_flatten((given.args, given.kwargs))
    if spec != given_spec:
        raise LoadError(
            subject,
            f"the inputs are nested as {given_spec}",
            f"the program expects {spec}",
        )
    for position, (a, b) in enumerate(zip(expected, leaves, strict=True)):
        if isinstance(a, torch.Tensor) and (
            not isinstance(b, torch.Tensor) or _type_of(a) != _type_of(b)
        ):
            raise LoadError(
                subject,
                f"input {position} is {_describe(b)}",
                f"the program expects {_describe(a)}",
            )


def require_declared_sizes(
    subject: str, program: ExportedProgram, given: Inputs
) -> None:
    """Refuse sizes and numbers that the program was not exported for.

    Raises:
        LoadError: which, what it is, and what the program declares.
    """
    leaves = given.flat()
    nodes = [n for n in program.graph.nodes if n.op == "placeholder"]
    pairs = list(zip(nodes[len(nodes) - len(leaves) :], leaves, strict=True))
    sizes = [entry for node, leaf in pairs for entry in _sizes(node, leaf)]
    bound: dict[Any, sympy.Integer] = {}
    for _, declared, size in sizes:
        if isinstance(declared, sympy.Symbol) and type(size) is int:
            bound.setdefault(declared, sympy.Integer(size))
    for where, declared, size in sizes:
        wrong = _outside(program, declared, size) or _unequal(declared, size, bound)
        if wrong:
            raise LoadError(subject, f"{where} is {size!r}", f"{wrong}{_TO_TEST}")


_TO_TEST = (
    "; to reduce what the compiled program makes of such inputs: --until check-inputs, "
    "or --env AOTI_RUNTIME_CHECK_INPUTS=1"
)


def _sizes(node: fx.Node, leaf: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield where a size or number shows, what is declared there, and what it is."""
    value = node.meta.get("val")
    if isinstance(value, torch.Tensor) and isinstance(leaf, torch.Tensor):
        for dim, (size, real) in enumerate(zip(value.shape, leaf.shape, strict=True)):
            declared = size.node.expr if isinstance(size, torch.SymInt) else size
            yield f"dim {dim} of {node.name}", declared, int(real)
    elif isinstance(value, torch.SymInt):
        yield node.name, value.node.expr, leaf
    elif isinstance(value, (bool, int, float, str)):
        yield node.name, value, leaf


def _outside(program: ExportedProgram, declared: Any, size: Any) -> str:
    bounds = program.range_constraints.get(declared)
    if bounds is None:
        return ""
    if type(size) is int and bounds.lower <= size <= bounds.upper:
        return ""
    return f"the program declares {declared}, from {bounds.lower} to {bounds.upper}"


def _unequal(declared: Any, size: Any, bound: Mapping[Any, sympy.Integer]) -> str:
    if not isinstance(declared, sympy.Expr):
        same = type(declared) is type(size) and declared == size
        return "" if same else f"the program was exported for {declared!r} only"
    expected = declared.xreplace(bound)
    if not expected.is_number or expected == size:
        return ""
    by = f"{declared}, which is " if expected != declared else ""
    return f"the program expects {by}{expected}"


def _type_of(tensor: torch.Tensor) -> tuple[torch.dtype, int, str]:
    return tensor.dtype, tensor.dim(), tensor.device.type


def _describe(value: object) -> str:
    if isinstance(value, torch.Tensor):
        return f"{value.dtype} of shape {tuple(value.shape)} on {value.device.type}"
    return type(value).__name__
