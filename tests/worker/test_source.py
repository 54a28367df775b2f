"""A program as source, and what it is called with."""

from __future__ import annotations

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
