"""Indices that no correct kernel of a custom operator could use."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from shrinkfx.worker.checking.check import find_invalid_index
from shrinkfx.worker.graph.rebuild import RebuiltCandidate
from shrinkfx.worker.model import Inputs, Program


@torch.library.custom_op("indices::rows", mutates_args=())
def rows(table: Tensor, ids: Tensor) -> Tensor:
    return table.new_zeros(*ids.shape, table.shape[1])


@rows.register_fake
def _(table: Tensor, ids: Tensor) -> Tensor:
    return table.new_empty(*ids.shape, table.shape[1])


class Rows(nn.Module):
    def forward(self, table: Tensor, ids: Tensor) -> Tensor:
        made: Tensor = rows(table, ids)
        return made + 1


class RowsOfSum(nn.Module):
    def forward(self, table: Tensor, ids: Tensor) -> Tensor:
        made: Tensor = rows(table, ids + 1)
        return made


def answer(
    module: nn.Module, before: tuple[Tensor, Tensor], now: tuple[Tensor, Tensor]
) -> str:
    whole = torch.export.export(module, before)
    reduced = torch.export.export(Rows(), now)
    was, made = Inputs(before, {}), Inputs(now, {})
    program = Program(whole, whole, was, was)
    return find_invalid_index(RebuiltCandidate(reduced, made, made), program)


BEFORE = torch.ones(50, 8), torch.tensor([3, 49])


@pytest.mark.parametrize(
    ("table", "ids", "is_valid"),
    [
        (torch.ones(50, 8), torch.tensor([49]), True),
        (torch.ones(2, 1), torch.tensor([1]), True),
        (torch.ones(1, 1), torch.tensor([1]), False),
        (torch.ones(50, 8), torch.tensor([0, 50]), False),
        (torch.ones(1, 1), torch.tensor([1], dtype=torch.int16), True),
    ],
)
def test_index_must_stay_smaller_than_a_size(
    table: Tensor, ids: Tensor, *, is_valid: bool
) -> None:
    why = answer(Rows(), BEFORE, (table, ids))
    message = "indices.rows.default gets an index out of range"
    assert why.partition(",")[0] == ("" if is_valid else message)


def test_number_that_is_no_index_in_the_input_program_may_have_any_value() -> None:
    seeds = torch.ones(2, 3), torch.tensor([1000])
    assert not answer(Rows(), seeds, (torch.ones(1, 1), torch.tensor([5])))


def test_number_that_the_input_program_computes_may_have_any_value() -> None:
    now = torch.ones(1, 1), torch.tensor([5])
    assert not answer(RowsOfSum(), BEFORE, now)
