"""The kinds of steps that a random program is made of.

Each draws its operands from a draft and adds a step; it returns whether it could.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from drafts import (
    Draft,
    alike,
    has_dims,
    is_bool,
    is_complex,
    is_float,
    is_half,
    is_integer,
    is_number,
    is_plain,
    is_sized,
    is_tensor,
)
from torch import Tensor
from torch._higher_order_ops.while_loop import while_loop
from torch.nn import functional as F

Kind = Callable[[Draft], bool]
KINDS: list[Kind] = []


def kind(times: int) -> Callable[[Kind], Kind]:
    """List a kind, to be drawn so often as ``times`` says."""

    def listed(function: Kind) -> Kind:
        KINDS.extend([function] * times)
        return function

    return listed


def is_whole(value: Any) -> bool:
    """Tell whether a tensor holds elements; many operators refuse empty ones."""
    return isinstance(value, Tensor) and value.numel() > 0


@kind(6)
def unary(d: Draft) -> bool:
    names = "sin cos tanh relu sigmoid abs neg square silu exp2 isnan sign"
    name = d.random.choice(names.split())
    function = getattr(torch, name, None) or getattr(F, name)
    return d.do(function, d.pick(is_float, loose=True))


@kind(5)
def binary(d: Draft) -> bool:
    x = d.pick(is_plain, loose=True)
    if x is None:
        return False
    name = d.random.choice(["add", "sub", "mul", "maximum", "eq", "where"])
    y = d.pick(alike(d.values[x]), loose=x in d.loose)
    if name == "where":
        return d.do(lambda x, y: torch.where(x > y, x, y), x, y)
    return d.do(getattr(torch, name), x, y)


@kind(3)
def scaled(d: Draft) -> bool:
    factor = d.random.choice([2, 0.5, -1, math.inf, True, 1e-3])
    functions: list[Callable[[Tensor, float], Tensor]] = [
        *(torch.add, torch.mul, torch.div, torch.gt),
    ]
    function = d.random.choice(functions)
    return d.do(lambda x: function(x, factor), d.pick(is_plain, loose=True))


@kind(3)
def broadcast(d: Draft) -> bool:
    mean = d.random.choice(
        [
            lambda x: x + x.mean(),
            lambda x: x - x.mean(0),
            lambda x: x / (x.abs().amax(-1, keepdim=True) + 1),
            lambda x: x.softmax(-1),
            lambda x: F.layer_norm(x, [x.shape[-1]]),
        ]
    )
    return d.do(mean, d.pick(is_float, has_dims(1), is_whole))


@kind(5)
def cast(d: Draft) -> bool:
    kinds = [torch.float16, torch.bfloat16, torch.float64, torch.int8, torch.int64]
    kinds += [torch.bool, torch.complex64, torch.float8_e4m3fn]
    target = d.random.choice(kinds)
    return d.do(lambda x: x.to(target), d.pick(is_plain, loose=True))


@kind(4)
def cast_back(d: Draft) -> bool:
    rare = d.pick(lambda v: is_tensor(v) and not is_float(v) and not is_complex(v))
    return d.do(lambda x: x.to(torch.float32), rare)


@kind(2)
def in_half(d: Draft) -> bool:
    names = ["relu", "neg", "abs", "sigmoid", "exp"]
    return d.do(getattr(torch, d.random.choice(names)), d.pick(is_half))


@kind(2)
def of_complex(d: Draft) -> bool:
    z = d.pick(is_complex)
    if z is None:
        return d.do(lambda x: torch.complex(x.float(), x.float()), d.pick(is_float))
    functions: list[Callable[[Tensor], Tensor]] = [
        *(torch.view_as_real, torch.abs, torch.real, torch.imag, torch.conj),
        lambda z: z.conj() * z,
        lambda z: z * 1j,
    ]
    return d.do(d.random.choice(functions), z)


@kind(2)
def integers(d: Draft) -> bool:
    functions: list[Callable[[Tensor], Tensor]] = [
        lambda x: x.clamp(-3, 3),
        lambda x: x // 2,
        lambda x: x.sum(),
        lambda x: F.one_hot(x.long().abs() % 4, 4),
        lambda x: x.bitwise_and(3),
    ]
    return d.do(d.random.choice(functions), d.pick(is_integer))


@kind(3)
def reduction(d: Draft) -> bool:
    functions: list[Callable[[Tensor], Any]] = [
        *(torch.sum, torch.numel, torch.mean, torch.amax),
        lambda x: x.sum(0),
        lambda x: x.argmax(-1),
        lambda x: (x > 0).any(),
        lambda x: x.cumsum(0),
        lambda x: x.sum(-1, keepdim=True, dtype=torch.float64),
    ]
    return d.do(d.random.choice(functions), d.pick(is_float, is_whole))


@kind(6)
def view(d: Draft) -> bool:
    functions: list[Callable[[Tensor], Any]] = [
        lambda x: x.transpose(0, -1),
        lambda x: x.flatten(),
        lambda x: x.unsqueeze(0),
        lambda x: x[..., ::2],
        lambda x: x[1:],
        lambda x: x[0],
        lambda x: x[:0],
        lambda x: x.expand(2, *x.shape),
        lambda x: x.as_strided(tuple(x.shape), tuple(x.stride())),
        lambda x: x.squeeze(0),
        lambda x: x.reshape(x.shape[0], -1),
        lambda x: x.view(-1),
        lambda x: x.permute(*reversed(range(x.dim()))),
        lambda x: x.detach(),
        lambda x: x.view(torch.uint8) if x.dtype is torch.int8 else x.view_as(x),
    ]
    return d.do(d.random.choice(functions), d.pick(is_sized))


@kind(4)
def rearranged(d: Draft) -> bool:
    functions: list[Callable[[Tensor], Tensor]] = [
        lambda x: torch.cat([x, x]),
        lambda x: torch.stack([x, x], -1),
        lambda x: x.flip(0),
        lambda x: x.repeat(2, *[1] * (x.dim() - 1)),
        lambda x: x.roll(1, 0),
        lambda x: x.contiguous(),
        lambda x: x.clone(memory_format=torch.contiguous_format),
        lambda x: x.tril() if x.dim() > 1 else x.diag(),
        lambda x: F.pad(x, (1, 1)),
    ]
    return d.do(d.random.choice(functions), d.pick(is_sized, is_plain, is_whole))


@kind(5)
def several(d: Draft) -> bool:
    """Several results, of which some will have no user."""
    functions: list[Callable[[Tensor], Any]] = [
        lambda x: torch.split(x, 2, -1),
        lambda x: torch.chunk(x, 2, 0),
        lambda x: torch.topk(x, 1),
        lambda x: x.unbind(-1),
        lambda x: torch.var_mean(x, -1),
        lambda x: x.sort(-1),
        lambda x: x.max(0),
        lambda x: torch.aminmax(x),
        lambda x: torch.native_layer_norm(x, [x.shape[-1]], None, None, 1e-5),
        lambda x: x.tensor_split([1], -1),
    ]
    x = d.pick(is_float, has_dims(1), is_whole)
    if x is not None and d.values[x].shape[-1] > 4:
        return False  # as many results as a dynamic dim is long
    return d.do(d.random.choice(functions), x)


@kind(3)
def matrix(d: Draft) -> bool:
    x = d.pick(is_float, has_dims(2, 3), is_whole)
    if x is None or d.values[x].shape[-1] > 4:
        return False
    kind_of = {"dtype": d.values[x].dtype}
    weight = d.weight(torch.randn(3, d.values[x].shape[-1], **kind_of))
    if d.random.random() < 0.5:
        return d.do(lambda x: F.linear(x, weight()), x)
    bias = d.weight(torch.randn(3, **kind_of))
    return d.do(lambda x: F.linear(x, weight(), bias()), x)


@kind(2)
def from_weight(d: Draft) -> bool:
    weight = d.weight(torch.linspace(-1, 1, d.random.choice([1, 2, 3])))
    x = d.pick(is_float, has_dims(1))
    return d.do(lambda x: x * weight(), x) or d.do(lambda: weight().exp())


@kind(2)
def indexed(d: Draft) -> bool:
    functions: list[Callable[[Tensor, Tensor], Tensor]] = [
        lambda x, i: x[i.flatten() % x.shape[0]],
        lambda x, i: x.index_select(0, i.flatten() % x.shape[0]),
        lambda x, i: F.embedding(i % x.shape[0], x),
        lambda x, i: x.index_add(0, i.flatten()[:1] * 0, x[:1]),
    ]
    index = d.pick(lambda v: is_tensor(v) and v.dtype is torch.int64)
    if index is None:
        return d.do(lambda x: (x * 3).long().abs(), d.pick(is_float))
    return d.do(d.random.choice(functions), d.pick(is_float, is_sized), index)


@kind(2)
def masked(d: Draft) -> bool:
    mask = d.pick(is_bool)
    if mask is None:
        return d.do(lambda x: x > 0, d.pick(is_float))
    return d.do(lambda m: torch.where(m, 1.5, -1.0), mask)


@kind(2)
def random(d: Draft) -> bool:
    functions: list[Callable[[Tensor], Tensor]] = [
        lambda x: F.dropout(x, 0.5, training=True),
        torch.rand_like,
        lambda x: torch.randint(0, 5, (x.shape[0], 2)),
        lambda x: torch.bernoulli(x.sigmoid()),
        lambda x: x + torch.randn(x.shape[-1], dtype=x.dtype),
    ]
    return d.do(d.random.choice(functions), d.pick(is_float, is_sized))


@kind(5)
def in_place(d: Draft) -> bool:
    """Write into a copy, through a view or not."""
    functions: list[Callable[[Tensor], Any]] = [
        lambda x: x.clone().add_(1),
        lambda x: _written(x, lambda y: y[0].mul_(3)),
        lambda x: _written(x, lambda y: y.transpose(0, -1).relu_()),
        lambda x: _written(x, lambda y: y[1:].copy_(y[:-1].clone())),
        lambda x: _written(x, lambda y: y.masked_fill_(y > 0, 0.5)),
        lambda x: _written(x, lambda y: y.index_fill_(0, torch.tensor([0]), 2.0)),
        lambda x: _written(x, lambda y: y.zero_()),
        lambda x: _written(x, lambda y: y.unbind(0)[0].add_(1)),
    ]
    return d.do(d.random.choice(functions), d.pick(is_float, is_sized, is_whole))


def _written(x: Tensor, write: Callable[[Tensor], Any]) -> Tensor:
    y = x.clone()
    write(y)
    return y + 1


@kind(2)
def buffer(d: Draft) -> bool:
    """Count in a buffer, and read it afterwards."""
    name = f"count{len(d.tape.steps)}"
    d.tape.register_buffer(name, torch.zeros(1), d.random.random() < 0.5)

    def counted(x: Tensor) -> Tensor:
        held: Tensor = getattr(d.tape, name)
        held.mul_(0.9).add_(x.mean().float())
        return x * held

    return d.do(counted, d.pick(is_float, is_whole))


@kind(2)
def sizes(d: Draft) -> bool:
    functions: list[Callable[[Tensor], Tensor]] = [
        lambda x: x * x.shape[0],
        lambda x: torch.arange(x.shape[0]),
        lambda x: torch.full((x.shape[0], 2), 0.5),
        lambda x: x[: x.shape[0] // 2],
        lambda x: x / x.shape[0] ** 0.5,
        lambda x: x.new_zeros(torch.sym_max(x.shape[0], 3), 2),
        lambda x: x.reshape(x.shape[0] * x.shape[-1], -1),
        lambda x: x.sum() / x.numel(),
    ]
    return d.do(d.random.choice(functions), d.pick(is_float, is_sized))


@kind(2)
def size_of_another(d: Draft) -> bool:
    """A value whose size comes from where its data does not."""
    functions: list[Callable[[Tensor, Tensor], Tensor]] = [
        lambda x, y: x.expand(y.shape[0] + 1, *x.shape).sum(0),
        lambda x, y: x * (y.shape[0] - 1),
        lambda x, y: torch.zeros(x.shape[0], y.shape[-1]),
    ]
    operands = d.pick(is_float, is_sized), d.pick(is_tensor, is_sized)
    return d.do(d.random.choice(functions), *operands)


@kind(2)
def number(d: Draft) -> bool:
    """Read a number off a tensor, or compute with one."""
    n = d.pick(is_number)
    if n is not None and d.random.random() < 0.7:
        return d.do(lambda x, n: x * n, d.pick(is_float, loose=True), n)
    if d.random.random() < 0.5:
        return d.do(lambda x: x.sum().item(), d.pick(is_float))
    return d.do(lambda x: x.shape[0] + 1, d.pick(is_sized))


@kind(2)
def data_dependent(d: Draft) -> bool:
    functions: list[Callable[[Tensor], Any]] = [
        lambda x: torch.nonzero(x > 0),
        lambda x: x[x > 0],
        lambda x: x.masked_select(x < 0.5),
        _counted,
    ]
    return d.do(d.random.choice(functions), d.pick(is_float, is_whole), loose=True)


def _counted(x: Tensor) -> Tensor:
    n: Any = (x > 0).sum().item()
    torch._check(n >= 0)
    torch._check(n <= 1000)
    return torch.ones(n, 2)


@kind(1)
def asserted(d: Draft) -> bool:
    def checked(x: Tensor) -> Tensor:
        torch._assert_async(x.isfinite().any() | True)
        return x.cos()

    return d.do(checked, d.pick(is_float))


@kind(1)
def branch(d: Draft) -> bool:
    """A higher-order operator; its branches use a value from outside."""
    x = d.pick(is_float, is_whole)
    if x is None:
        return False
    y = d.pick(alike(d.values[x]))

    def branched(x: Tensor, y: Tensor) -> Any:
        choose = torch.cond if torch.compiler.is_exporting() else chosen
        return choose(x.sum() > 0, lambda v: (v * y).sin(), lambda v: v - y, (x,))

    return d.do(branched, x, y)


def chosen(
    test: Tensor,
    yes: Callable[..., Tensor],
    no: Callable[..., Tensor],
    operands: tuple[Tensor, ...],
) -> Tensor:
    """Do what ``torch.cond`` does in eager without starting a compiler."""
    return (yes if test else no)(*operands)


@kind(1)
def loop(d: Draft) -> bool:
    def looped(x: Tensor) -> Any:
        # What goes around keeps its strides, and one dim has few to choose from.
        start = torch.zeros((), dtype=torch.int64), x.exp().reshape(-1)
        repeat = while_loop if torch.compiler.is_exporting() else _looped
        return repeat(lambda i, v: i < 3, lambda i, v: (i + 1, v * 0.5), start)[1]

    return d.do(looped, d.pick(is_float, is_whole))


def _looped(
    test: Callable[..., Tensor], step: Callable[..., Any], carried: tuple[Tensor, ...]
) -> tuple[Tensor, ...]:
    while test(*carried):
        carried = step(*carried)
    return carried


@kind(1)
def without_grad(d: Draft) -> bool:
    def guarded(x: Tensor) -> Tensor:
        with torch.no_grad():
            return x.tanh() * 2

    return d.do(guarded, d.pick(is_float))


@kind(1)
def under_autocast(d: Draft) -> bool:
    def lowered(x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return x @ x.transpose(-1, -2)

    return d.do(lowered, d.pick(is_float, has_dims(2, 3)))


@kind(1)
def input_written(d: Draft) -> bool:
    """Write into an input: whoever calls sees it."""
    x = d.pick(is_float, is_whole)
    if x is None or x >= d.inputs or not all(d.values[x].stride()):
        return False
    return d.do(lambda x: x.mul_(0.5), x)
