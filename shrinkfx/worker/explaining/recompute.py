"""Recompute values in eager, and measure how compiled values differ from them.

x -> sin -> y -> cos -> z        z from y alone if y is known, else from x
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import fx

from shrinkfx.protocol.kernel_values import Wrong
from shrinkfx.worker.eager.intermediates import (
    copy_value,
    mark_beyond_rounding,
    to_float64,
    widen,
    widen_dtype,
)
from shrinkfx.worker.private_api.graph_api import pytree

Known = Mapping[fx.Node, Any]
"""Known values of nodes: tensors and numbers."""

_WRITES_BACK = torch.ops.aten.copy_.default
_SEEDS = (0, 1)


class CannotRecompute(Exception):
    """Eager cannot compute a value, or computes two different ones; says why."""


def list_nodes_between(node: fx.Node, known: Iterable[fx.Node]) -> list[fx.Node]:
    """List the nodes between known values and a node, in the graph's order.

    Nodes that write into an operand are included, because later readers see their
    writes.
    """
    known, order = set(known) - {node}, {n: i for i, n in enumerate(node.graph.nodes)}
    nodes, pending = set(), [node]
    while pending:
        current = pending.pop()
        if current in nodes or current in known:
            continue
        nodes.add(current)
        pending += current.all_input_nodes
        for operand in current.all_input_nodes:
            pending += [w for w in list_writers(operand) if order[w] < order[current]]
    return sorted(nodes, key=order.__getitem__)


def list_writers(node: fx.Node) -> list[fx.Node]:
    """List the nodes that write into a value of the graph.

    Nodes that write back to inputs and buffers are left out, because they run last.
    """
    return [user for user in node.users if _writes(user) and node in user.args]


def _writes(node: fx.Node) -> bool:
    """Return whether a node writes into an operand, other than a final write-back."""
    schema = getattr(node.target, "_schema", None)
    in_place = bool(schema and schema.is_mutable) or "mutation" in str(node.target)
    return in_place and node.target is not _WRITES_BACK


def is_view(node: fx.Node) -> bool:
    """Return whether an operator returns the memory of its operand."""
    schema = getattr(node.target, "_schema", None)
    aliases = [r.alias_info for r in schema.returns] if schema else []
    return any(alias is not None and not alias.is_write for alias in aliases)


def recompute(node: fx.Node, known: Known, *, exactly: bool = False) -> Any:
    """Compute a node's value from known values.

    Args:
        exactly: compute in float64.

    Raises:
        CannotRecompute: an operator raises, draws random numbers, or returns
            uninitialized memory.
    """
    part = list_nodes_between(node, known)
    for step in part:
        if "empty" in str(step.target):
            raise CannotRecompute(f"{step.target} returns uninitialized memory")
    first, second = (_run(node, part, known, exactly, seed) for seed in _SEEDS)
    if not is_identical(first, second):
        raise CannotRecompute("it depends on random numbers")
    return first


def measure_sensitivity(node: fx.Node, known: Known) -> torch.Tensor:
    """Measure how far a node's value moves if its operands are rounded differently.

    Returns:
        For each element, the largest of three changes, each from operands that were
        moved by up to two units in the last place.
    """
    exact = recompute(node, known, exactly=True)
    moved = []
    for seed in range(3):
        torch.manual_seed(seed)
        jittered = {n: pytree.tree_map(_jitter, v) for n, v in known.items()}
        value = recompute(node, jittered, exactly=True)
        moved.append((value - exact).abs().nan_to_num(torch.inf))
    return torch.stack(moved).amax(0)


def _jitter(value: Any) -> Any:
    """Move each element of a float tensor by up to two units in its last place."""
    if not isinstance(value, torch.Tensor) or not value.is_floating_point():
        return value
    ulps = 4 * torch.finfo(value.dtype).eps * (torch.rand(value.shape) - 0.5)
    return value.to(torch.float64) * (1 + ulps)


def run_graph(
    graph: fx.Graph, known: Known, seed: int, ignored: fx.Node | None = None
) -> dict[fx.Node, Any]:
    """Compute the values of all nodes, except where an operator raises.

    Args:
        ignored: a node whose writes into its operands are discarded.
    """
    values = dict(known)
    torch.manual_seed(seed)
    for node in graph.nodes:
        if node.op == "output" or node in values:
            continue
        try:
            operands = _copied(values) if node is ignored else values
            values[node] = _call(node, operands, exactly=False)
        except Exception:  # noqa: BLE001 - operators may raise anything
            continue
    return values


def _run(
    node: fx.Node, part: list[fx.Node], known: Known, exactly: bool, seed: int
) -> Any:
    """Compute a node's value by running a part of the graph with one seed.

    Raises:
        CannotRecompute: an operator raises.
    """
    widened = to_float64 if exactly else copy_value
    needed = {n for step in part for n in step.all_input_nodes}
    values = {n: pytree.tree_map(widened, v) for n, v in known.items() if n in needed}
    torch.manual_seed(seed)
    try:
        for step in part:
            values[step] = _call(step, values, exactly=exactly)
    except Exception as error:
        what = f"{type(error).__name__}: {error}".partition("\n")[0]
        raise CannotRecompute(f"{step.name}: {what:.200}") from error
    return values[node]


def _call(node: fx.Node, values: Known, *, exactly: bool) -> Any:
    """Call a node's operator on known values, on the CPU.

    Raises:
        CannotRecompute: the node is no operator call.
    """
    if node.op != "call_function":
        raise CannotRecompute(f"{node.name} is not known")
    args, kwargs = fx.map_arg((node.args, node.kwargs), values.__getitem__)
    if exactly:
        args, kwargs = pytree.tree_map(widen_dtype, (args, kwargs))
    args, kwargs = pytree.tree_map(_on_cpu, (args, kwargs))
    if node.target is _WRITES_BACK:
        args = (args[0].clone(), *args[1:])
    with torch.no_grad():
        value = node.target(*args, **kwargs)  # type: ignore[operator]
    return pytree.tree_map(to_float64, value) if exactly else value


def _on_cpu(value: Any) -> Any:
    """Replace a device by the CPU, because Inductor's graph may name a missing GPU."""
    return torch.device("cpu") if isinstance(value, torch.device) else value


def run_deterministic(graph: fx.Graph, known: Known) -> dict[fx.Node, Any]:
    """Compute the values of all nodes that do not depend on random numbers."""
    first, second = (run_graph(graph, _copied(known), seed) for seed in _SEEDS)
    return {
        n: v for n, v in first.items() if n in second and is_identical(v, second[n])
    }


def _copied(known: Known) -> Known:
    return {node: copy_value(value) for node, value in known.items()}


def is_identical(first: Any, second: Any) -> bool:
    """Return whether two values or tuples are equal; NaN equals NaN."""
    mine, theirs = pytree.tree_leaves(first), pytree.tree_leaves(second)
    return len(mine) == len(theirs) and all(map(_same, mine, theirs))


def _same(first: Any, second: Any) -> bool:
    if isinstance(first, torch.Tensor) and isinstance(second, torch.Tensor):
        if first.shape != second.shape:
            return False
        return bool(torch.isclose(first, second, 0, 0, equal_nan=True).all())
    return bool(first == second) or first != first


def copy_to_cpu(value: Any) -> Any:
    """Copy a value to the CPU, where eager runs."""
    copied = copy_value(value)
    return copied.cpu() if isinstance(copied, torch.Tensor) else copied


def list_called_operators(part: Iterable[fx.Node]) -> tuple[str, ...]:
    """Name the operators that a part of a graph calls, once each; skip ``getitem``."""
    functions = (n for n in part if n.op == "call_function")
    targets = (n.target for n in functions if n.target is not operator.getitem)
    return tuple(dict.fromkeys(str(target) for target in targets))


# Measure how a tensor differs from the expected tensor.

Tolerance = Callable[[torch.dtype], tuple[float, float]]
"""The relative and absolute tolerance for values of a dtype."""

_ROUNDING_FACTOR = 10
"""A difference up to this multiple of the effect of rounding is no error."""


def measure_difference(
    actual: torch.Tensor,
    expected: torch.Tensor,
    exact: torch.Tensor | None,
    tolerance: Tolerance,
    rounding: torch.Tensor | None = None,
) -> Wrong | None:
    """Measure how a tensor differs from eager's; return None if it is close enough.

    Args:
        exact: the float64 result, if there is one; differences that eager's own
            rounding explains are no errors.
        tolerance: the relative and absolute tolerance by dtype.
        rounding: for each element, how far it moves if its inputs are rounded
            differently.
    """
    for what in ("dtype", "shape"):
        a, e = getattr(actual, what), getattr(expected, what)
        if a != e:
            a, e = (tuple(v) if what == "shape" else v for v in (a, e))
            return Wrong(metadata=f"its {what} is {a}, eager's {e}")
    if exact is not None and exact.shape != expected.shape:
        exact = None
    a, e = widen(actual), widen(expected)
    rtol, atol = tolerance(expected.dtype)
    marked = ~torch.isclose(a, e, rtol=rtol, atol=atol, equal_nan=True)
    if exact is not None:
        marked &= mark_beyond_rounding(actual, expected, exact, (rtol, atol))
    if rounding is not None:
        marked &= (a - e).abs().nan_to_num(torch.inf) > _ROUNDING_FACTOR * rounding
    if not marked.any():
        return None
    return _measure_marked(actual, expected, exact, marked, (rtol, atol))


def _measure_marked(
    actual: torch.Tensor,
    expected: torch.Tensor,
    exact: torch.Tensor | None,
    marked: torch.Tensor,
    limits: tuple[float, float],
) -> Wrong:
    """Return the number, sizes and first position of the marked differences."""
    a, e = widen(actual)[marked], widen(expected)[marked]
    first = tuple(int(i) for i in marked.nonzero()[0])
    errors = (a - e).abs().to(torch.float64)
    return Wrong(
        wrong=int(marked.sum()),
        of=marked.numel(),
        first=first,
        got=str(actual[first].item()),
        expected=str(expected[first].item()),
        largest=_largest(errors),
        relative=_largest(errors / e.abs()),
        ulps=_largest(errors / _ulp(e, expected.dtype)),
        nans=_nans(actual),
        nans_expected=_nans(expected),
        exact=""
        if exact is None
        else _find_agreement(widen(exact)[marked], a, e, limits),
    )


def _largest(errors: torch.Tensor) -> float | None:
    """Return the largest finite error; None if there is none."""
    finite = errors[errors.isfinite()]
    return float(finite.max()) if finite.numel() else None


def _ulp(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return the unit in the last place of each value; NaN for integers.

    It is 2 ** (floor(log2 |value|)) * eps, and at least that of the smallest normal
    number.
    """
    size = values.abs().to(torch.float64)
    if not dtype.is_floating_point and not dtype.is_complex:
        return torch.full_like(size, torch.nan)
    info = torch.finfo(dtype)
    exponent = torch.frexp(size.clamp(min=info.smallest_normal)).exponent - 1
    return torch.pow(2.0, exponent.to(torch.float64)) * info.eps


def _nans(values: torch.Tensor) -> int:
    return int(values.isnan().sum())


def _find_agreement(
    exact: torch.Tensor,
    actual: torch.Tensor,
    expected: torch.Tensor,
    limits: tuple[float, float],
) -> str:
    """Return which of the two results float64 agrees with, where they differ.

    Returns:
        ``eager``, ``compiled``, ``both`` or ``neither``.
    """
    rtol, atol = limits
    agrees = [
        bool(torch.isclose(v, exact, rtol=rtol, atol=atol, equal_nan=True).all())
        for v in (expected, actual)
    ]
    names = {(True, False): "eager", (False, True): "compiled", (True, True): "both"}
    return names.get((agrees[0], agrees[1]), "neither")
