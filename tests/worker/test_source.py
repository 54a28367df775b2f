"""A program as source, and what it is called with."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from shrinkfx.worker.load import Inputs
from shrinkfx.worker.rebuild import Rebuilt
from shrinkfx.worker.source import print_program, run_source
from shrinkfx.worker.values import SEED, run_eager


class Widen(torch.nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.to(torch.float64) * 2


QUARTERS = [
    *(torch.float8_e4m3fn, torch.float8_e4m3fnuz),
    *(torch.float8_e5m2, torch.float8_e5m2fnuz),
]


def called_with(example: Tensor, failing: Tensor) -> Rebuilt:
    exported = torch.export.export(Widen(), (example,))
    return Rebuilt(exported, Inputs((example,), {}), Inputs((failing,), {}))


@pytest.mark.parametrize("dtype", [*QUARTERS, torch.bfloat16, torch.bool])
def test_two_sets_of_inputs_are_told_apart_by_their_bytes(dtype: torch.dtype) -> None:
    example, failing = (torch.tensor([[v, 0.5]] * 2).to(dtype).t() for v in (0.0, 2.0))
    built = called_with(example, failing)
    (two,) = print_program(built).inputs
    (one,) = print_program(called_with(example, example.clone())).inputs
    assert one.failing is None
    assert two.failing is not None
    assert two.failing.exact != two.example.exact
    scope = {"torch": torch}
    read = eval(two.failing.exact, scope)
    assert (read.dtype, read.stride()) == (dtype, failing.stride())
    assert read.to(torch.float64).tolist() == failing.to(torch.float64).tolist()
    again = run_source(print_program(built), built)
    (result,) = run_eager(again, built.failing, seed=SEED)
    assert result.tolist() == (failing.to(torch.float64) * 2).tolist()


def test_one_element_may_have_any_stride() -> None:
    example, failing = (torch.full((2,), v)[::2] for v in (1.0, 2.0))
    assert example.stride() == (2,)
    (one,) = print_program(called_with(example, example)).inputs
    (two,) = print_program(called_with(example, failing)).inputs
    assert (one.failing is None, two.failing is None) == (True, False)


def test_inputs_that_are_no_numbers_are_one_set() -> None:
    values = torch.tensor([float("nan"), 1.0])
    (one,) = print_program(called_with(values, values.clone())).inputs
    assert one.failing is None


class CondInCond(torch.nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        def inner(v: Tensor) -> Tensor:
            w: Tensor = torch.cond(v.max() > 0, lambda w: w * 2, torch.neg, (v,))
            return w + 1

        found: Tensor = torch.cond(x.sum() > 0, inner, lambda v: v.sin(), (x,))
        return found


class CondInLoop(torch.nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        def body(i: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
            more = torch.cond(v.max() > 1, lambda w: w * 2, lambda w: w - 1, (v,))
            return i + 1, more + 0.5

        start = torch.tensor(0), x.relu()
        loop: Any = torch._higher_order_ops.while_loop
        found: Tensor = loop(lambda i, v: i < 3, body, start)[1].cos()
        return found


@pytest.mark.parametrize("model", [CondInCond, CondInLoop])
def test_graphs_inside_of_graphs_can_be_exported_again(
    model: type[torch.nn.Module],
) -> None:
    inputs = Inputs((torch.tensor([[0.5, 2.0], [1.0, -3.0]]),), {})
    exported = torch.export.export(model(), inputs.args)
    built = Rebuilt(exported, inputs, inputs)
    again = run_source(print_program(built), built)
    expected = run_eager(exported, inputs, seed=SEED)
    assert torch.equal(run_eager(again, inputs, seed=SEED)[0], expected[0])


class Middle(torch.nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        _, middle, _ = torch.split(x, 1)
        return middle.relu()


def test_values_of_a_tuple_that_nobody_uses_are_not_printed() -> None:
    x = torch.randn(3, 2)
    exported = torch.export.export(Middle(), (x,))
    built = Rebuilt(exported, Inputs((x,), {}), Inputs((x,), {}))
    printed = print_program(built)
    assert [line for line in printed.body if line.endswith("]")] == [
        "getitem_1 = split[1]"
    ]
    (found,) = run_eager(run_source(printed, built), built.failing, seed=SEED)
    assert torch.equal(found, x[1:2].relu())
