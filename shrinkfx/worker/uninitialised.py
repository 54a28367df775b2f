"""Memory that an operator hands out as it is: what it holds is nobody's result.

A mixture of experts fills ``empty_like`` by ``index_put``. With that cut off, the
program returns what lay in memory: eager and compiled differ, and nothing is wrong.
So eager's two runs fill it with different numbers, and what differs between them is
not compared, as it is with random numbers. Branches and bodies are left as they are.
"""

from __future__ import annotations

import functools
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
    return function(*args, **kwargs).fill_(number)
