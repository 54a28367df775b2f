"""Operators that return less than they promise, which shows in nothing but values."""

from __future__ import annotations

import torch
from torch import Tensor


@torch.library.custom_op("lying::half", mutates_args=())
def half(values: Tensor) -> Tensor:
    """Return the first half of the rows: what reads the rest reads the heap."""
    return values[: values.shape[0] // 2].clone()


@torch.library.custom_op("lying::all_but_one", mutates_args=())
def all_but_one(values: Tensor) -> Tensor:
    """Return all elements but the last: fewer bytes than any allocator rounds up."""
    return values.flatten()[:-1].clone()


@half.register_fake
def _(values: Tensor) -> Tensor:
    return torch.empty_like(values)


@all_but_one.register_fake
def _(values: Tensor) -> Tensor:
    return values.new_empty(values.numel())


class OverRead(torch.nn.Module):
    def forward(self, values: Tensor) -> Tensor:
        return torch.add(values, torch.ops.lying.half(values).mean())


class SmallOverRead(torch.nn.Module):
    def forward(self, values: Tensor) -> Tensor:
        return torch.add(values, torch.ops.lying.all_but_one(values).amax())


class SmallOverWrite(torch.nn.Module):
    """Inductor writes the results over the operator's."""

    def forward(self, values: Tensor) -> Tensor:
        return torch.tanh(torch.ops.lying.all_but_one(values) * 0.5)
