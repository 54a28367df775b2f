"""Custom operators read only what they are given, where that is asked for."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from shrinkfx.worker.checking.check import find_out_of_bounds_operator
from shrinkfx.worker.graph.rebuild import RebuiltCandidate
from shrinkfx.worker.model import Inputs

SCALED = "rows.scaled.default"


def scaled(x: Tensor, by: Tensor) -> Tensor:
    """Read one factor for each row of ``x``, as C++ would: without asking ``by``."""
    if x.shape[0] > 8:
        raise RuntimeError("too many rows")
    factors = (ctypes.c_float * x.shape[0]).from_address(by.data_ptr())
    return x * torch.tensor(list(factors)).unsqueeze(1)


@pytest.fixture(name="operator", scope="module", autouse=True)
def _operator() -> Iterator[None]:
    with torch.library._scoped_library("rows", "DEF") as lib:
        lib.define("scaled(Tensor x, Tensor by) -> Tensor")
        lib.impl("scaled", scaled, "CompositeExplicitAutograd")
        lib.impl("scaled", lambda x, by: torch.empty_like(x), "Meta")
        yield


class Scaled(torch.nn.Module):
    def forward(self, x: Tensor, by: Tensor) -> Tensor:
        made: Tensor = torch.ops.rows.scaled(x.sin(), by)
        return made.cos()


def made(rows: int, factors: int) -> RebuiltCandidate:
    inputs = Inputs((torch.randn(rows, 3), torch.ones(factors)), {})
    return RebuiltCandidate(torch.export.export(Scaled(), inputs.args), inputs, inputs)


@pytest.mark.parametrize(
    ("rows", "factors", "strays"),
    [(2, 2, False), (2, 1, True), (1, 2, False), (9, 1, False)],  # eager raises
)
def test_operator_with_an_out_of_bounds_read_is_named(
    rows: int, factors: int, strays: bool
) -> None:
    told = f"{SCALED} reads outside its arguments, unlike in the input program"
    run = made(rows, factors)
    assert find_out_of_bounds_operator(run, [SCALED]) == (told if strays else "")
    assert find_out_of_bounds_operator(run, ["aten.sin.default"]) == ""
