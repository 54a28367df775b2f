"""Memory that an operator hands out as it is: what it holds is nobody's result.

A mixture of experts fills ``empty_like`` by ``index_put``. With that cut off, the
program returns what lay in memory: eager and compiled differ, and nothing is wrong.
So eager's two runs fill it with 0 and with what no program means, and what differs
between them is not compared, as it is with random numbers; where it is an index, eager
refuses. Branches and bodies are left as they are.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

_aten = torch.ops.aten
_HAND_OUT = frozenset(
    {
        _aten.empty.memory_format,
        _aten.empty_like.default,
        _aten.empty_permuted.default,
        _aten.empty_strided.default,
        _aten.new_empty.default,
        _aten.new_empty_strided.default,
    }
)


def fill(module: torch.nn.Module, number: int) -> None:
    """Have a program's own graph start with a number where it would start with
    nothing.
    """
    if not isinstance(module, fx.GraphModule):
        return
    found = [n for n in module.graph.nodes if n.target in _HAND_OUT]
    for node in found:
        filled = functools.partial(_filled, node.target, number)
        # Code is generated with its name.
        node.target = functools.update_wrapper(filled, _filled)
    if found:
        module.recompile()


def _filled(
    function: Callable[..., torch.Tensor], number: int, *args: Any, **kwargs: Any
) -> torch.Tensor:
    made = function(*args, **kwargs)
    return made.fill_(_far(made.dtype) if number else 0)


def _far(dtype: torch.dtype) -> float:
    """Choose what lies in no range that a program means: no index, no number."""
    if dtype == torch.bool:
        return 1
    if dtype.is_floating_point or dtype.is_complex:
        return math.nan
    limits = torch.iinfo(dtype)
    return limits.min // 2 or limits.max
