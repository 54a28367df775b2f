"""Operators that do what they declare, or something else."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

LIBRARY = torch.library.Library("declared", "FRAGMENT")  # type: ignore[no-untyped-call]


@torch.library.custom_op("declared::good", mutates_args=())
def good(x: Tensor, scales: list[Tensor], by: float = 2.0) -> Tensor:
    return x * by * scales[0]


@torch.library.custom_op("declared::counts", mutates_args=())
def counts(x: Tensor) -> Tensor:
    """Return as many rows as there are positive numbers: nobody can know before."""
    return x[:, 0][x[:, 0] > 0].clone()


@torch.library.custom_op("declared::adds", mutates_args={"x"})
def adds(x: Tensor, y: Tensor) -> None:
    x.add_(y)


@torch.library.custom_op("declared::writes", mutates_args=())
def writes(x: Tensor, y: Tensor) -> Tensor:
    y.zero_()
    return x + y


@torch.library.custom_op("declared::four_rows", mutates_args=())
def four_rows(x: Tensor) -> Tensor:
    return x.clone()


@four_rows.register_fake
def _(x: Tensor) -> Tensor:
    return x.new_empty(4, x.shape[1])


@torch.library.custom_op("declared::widens", mutates_args=())
def widens(x: Tensor) -> Tensor:
    return x.double()


@torch.library.custom_op("declared::transposes", mutates_args=())
def transposes(x: Tensor) -> Tensor:
    return x.t().contiguous().t()


@torch.library.custom_op("declared::attends", mutates_args=())
def attends(
    x: Tensor, more: list[Tensor], scale: float = 1.0, *, heads: int, how: str = ""
) -> Tensor:
    return torch.stack([x * scale] * heads)


@torch.library.custom_op("declared::crashes", mutates_args=())
def crashes(x: Tensor) -> Tensor:
    """Take four rows, and no other number of them."""
    if x.shape[0] != 4:
        ctypes.string_at(0)
    return x.clone()


@torch.library.custom_op("declared::picky", mutates_args=())
def picky(x: Tensor) -> Tensor:
    if x.shape[0] != 4:
        raise ValueError("four rows, please")
    return x.clone()


def _like_the_first(x: Tensor, *_: object, **__: object) -> Tensor:
    return torch.empty_like(x)


for _operator in (good, writes, widens, transposes, attends, crashes, picky):
    _operator.register_fake(_like_the_first)
counts.register_fake(lambda x: x.new_empty(torch.library.get_ctx().new_dynamic_size()))


# --- operators of the dispatcher


CALLS: list[int] = []


def _returned(x: Tensor) -> Tensor:
    return x.view(-1, x.shape[1])


def _twice(x: Tensor) -> tuple[Tensor, Tensor]:
    same = x.clone()
    return same, same


def _behind(x: Tensor) -> Tensor:
    end = x.data_ptr() + x.numel() * x.itemsize
    return x + (ctypes.c_float.from_address(end).value > 1e9)


def _half_filled(x: Tensor) -> Tensor:
    out = torch.empty_like(x)
    out.view(-1)[:-1] = x.reshape(-1)[:-1]
    return out


def _counting(x: Tensor) -> Tensor:
    CALLS.append(len(CALLS))
    return x + CALLS[-1]


def _random(x: Tensor) -> Tensor:
    return x + torch.rand_like(x)


def _as_it_lies(x: Tensor) -> Tensor:
    return x.as_strided(x.shape, (x.shape[1], 1)) * 1


def _define(
    schema: str, function: Callable[..., Any], key: str, tags: Sequence[Any] = ()
) -> None:
    name = LIBRARY.define(schema, tags=tags)  # type: ignore[no-untyped-call]
    LIBRARY.impl(name, function, key)  # type: ignore[no-untyped-call]


_define("returns(Tensor x) -> Tensor", _returned, "CompositeExplicitAutograd")
_define("twice(Tensor x) -> (Tensor, Tensor)", _twice, "CompositeExplicitAutograd")
_define("taken_apart(Tensor x) -> Tensor", _returned, "CompositeImplicitAutograd")
for _name, _tags, _function in (
    ("behind", (), _behind),
    ("half_filled", (), _half_filled),
    ("counting", (), _counting),
    ("random", (), _random),
    ("as_it_lies", (torch.Tag.flexible_layout,), _as_it_lies),
    ("as_it_lies_exactly", (torch.Tag.needs_exact_strides,), _as_it_lies),
):
    _define(f"{_name}(Tensor x) -> Tensor", _function, "CPU", _tags)
    torch.library.register_fake(f"declared::{_name}", torch.empty_like)
