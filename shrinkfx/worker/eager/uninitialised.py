"""Uninitialized memory in eager runs.

A mixture of experts fills ``empty_like`` by ``index_put``. If a candidate cuts the
``index_put``, it returns uninitialized memory: eager and compiled results differ,
although there is no bug. Therefore two eager runs fill the memory: one with 0, the
other with a number that no program expects. Elements that differ between the runs are
not compared, as with random numbers; if they are indices, eager raises an exception.
Branches and loop bodies are not filled.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

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
