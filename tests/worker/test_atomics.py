"""Atomic additions of bfloat16, lane by lane."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from shrinkfx.worker.interpreter.memory_checks import add_bfloat16


def bits(values: list[float]) -> NDArray[np.uint16]:
    return torch.tensor(values, dtype=torch.bfloat16).view(torch.uint16).numpy()


def add(cells: Tensor, at: list[int], values: list[float], mask: list[bool]) -> Tensor:
    addresses = np.array([cells.data_ptr() + 2 * i for i in at], dtype=np.uint64)
    before = add_bfloat16(addresses, bits(values), np.array(mask))
    return torch.from_numpy(before).view(torch.bfloat16)


def test_atomic_add_applies_only_in_active_lanes() -> None:
    cells = torch.tensor([1, 2, 3], dtype=torch.bfloat16)
    before = add(cells, [0, 1, 2], [10, 20, 30], [True, False, True])
    assert cells.tolist() == [11, 2, 33]
    assert before.tolist() == [1, 0, 3]


def test_atomic_add_accumulates_all_lanes_with_one_address() -> None:
    cells = torch.tensor([1], dtype=torch.bfloat16)
    before = add(cells, [0, 0, 0], [2, 3, 4], [True] * 3)
    assert cells.tolist() == [10]
    assert before.tolist() == [1, 3, 6]


@pytest.mark.parametrize("seed", range(3))
def test_atomic_add_rounds_as_torch_does(seed: int) -> None:
    torch.manual_seed(seed)
    left = (torch.randn(500) * 10 ** torch.randn(500)).to(torch.bfloat16)
    right = torch.randn(500).to(torch.bfloat16)
    left[0], left[1], left[2] = float("inf"), float("nan"), -float("inf")
    expected = left + right
    add(left, list(range(500)), right.tolist(), [True] * 500)
    assert torch.equal(left.nan_to_num(7.0), expected.nan_to_num(7.0))
