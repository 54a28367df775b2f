"""Higher-order operators on fake tensors: each runs every block once.

A loop body must return values like those that it takes; branches must return alike.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from shrinkfx.worker.listing.scope import Misfit

Block = Callable[..., Any]


def _cond(
    taken: Any,
    yes: Block,
    no: Block,
    operands: Sequence[object] = (),
) -> Any:
    _require_truth(taken)
    returned = yes(*operands)
    _require_alike(returned, no(*operands), "its branches return")
    return returned


def _while_loop(
    goes_on: Block,
    body: Block,
    carried: Sequence[object],
    extra: Sequence[object] = (),
) -> Any:
    _require_truth(goes_on(*carried, *extra))
    returned = body(*carried, *extra)
    _require_alike(carried, returned, "its body takes and returns")
    return returned


def _scan(
    body: Block,
    carried: Sequence[object],
    rows: Sequence[Tensor],
    extra: Sequence[object] = (),
) -> list[Any]:
    returned = body(*carried, *_first(rows), *extra)
    count = len(carried)
    _require_alike(carried, returned[:count], "its body takes and returns")
    return [*returned[:count], *_stacked(returned[count:], len(rows[0]))]


def _map(
    body: Block, rows: Sequence[Tensor], extra: Sequence[object] = ()
) -> list[Any]:
    return _stacked(body(*_first(rows), *extra), len(rows[0]))


def _associative_scan(
    combine: Block, rows: Sequence[Tensor], extra: Sequence[object] = ()
) -> list[Any]:
    firsts = _first(rows)
    _require_alike(firsts, combine(*firsts, *firsts, *extra), "it combines and makes")
    return [row.clone() for row in rows]


def _subgraph(block: Block, _name: object, *operands: object) -> Any:
    return block(*operands)


def _with_grad(_enabled: object, block: Block, *operands: object) -> Any:
    return block(*operands)


HIGHER_ORDER: dict[str, Callable[..., Any]] = {
    "torch.cond": _cond,
    "torch.ops.higher_order.cond": _cond,
    "torch.ops.higher_order.while_loop": _while_loop,
    "torch.ops.higher_order.scan": _scan,
    "torch.ops.higher_order.map_impl": _map,
    "torch.ops.higher_order.associative_scan": _associative_scan,
    "torch.ops.higher_order.invoke_subgraph": _subgraph,
    "torch.ops.higher_order.wrap_with_set_grad_enabled": _with_grad,
}
"""Implementations by callee; torch itself calls the blocks of other operators."""


def _require_truth(value: object) -> None:
    if isinstance(value, Tensor):
        if value.numel() != 1:
            raise Misfit(f"a condition of the shape {tuple(value.shape)}")
        if value.dtype is not torch.bool:
            raise Misfit(f"a condition of {value.dtype}")
    elif not isinstance(value, bool):
        raise Misfit(f"a condition that is a {type(value).__name__}")


def _require_alike(some: object, others: object, description: str) -> None:
    left, right = _items(some), _items(others)
    if len(left) != len(right):
        raise Misfit(f"{description} {len(left)} and {len(right)} values")
    for a, b in zip(left, right, strict=True):
        if _get_properties(a) != _get_properties(b):
            raise Misfit(f"{description} {_get_properties(a)} and {_get_properties(b)}")


def _items(values: object) -> list[object]:
    return list(values) if isinstance(values, (tuple, list)) else [values]


def _get_properties(value: object) -> tuple[object, ...]:
    """Return the properties in which two values must agree."""
    if isinstance(value, Tensor):
        return tuple(value.shape), value.dtype, value.device
    return (type(value).__name__,)


def _first(rows: Sequence[Tensor]) -> list[Tensor]:
    """Return the first row of each tensor, as a body receives it."""
    counts = {len(row) if row.dim() else 0 for row in rows}
    if len(counts) != 1 or 0 in counts:
        raise Misfit(f"rows of the numbers {sorted(counts)}")
    return [row[0].clone() for row in rows]


def _stacked(values: Sequence[object], count: int) -> list[Any]:
    return [
        value.new_empty((count, *value.shape)) if isinstance(value, Tensor) else value
        for value in values
    ]
