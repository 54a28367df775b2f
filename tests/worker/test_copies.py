"""Copies of what a program is given."""

from __future__ import annotations

import pytest
import torch

from shrinkfx.worker.eager.intermediates import copy_value

X = torch.arange(24.0)

VIEWS = {
    "contiguous": X.view(4, 6),
    "turned": X.view(4, 6).t(),
    "with gaps": X.view(4, 6)[1:, ::2],
    "expanded": X[2:5].expand(4, 3),
    "windows": X.unfold(0, 3, 1),
    "empty": X.view(4, 6)[:0],
    "of no dims": X[3],
    "conjugate": torch.complex(X, X).view(4, 6)[:, ::2].conj(),
}


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_a_copy_has_its_own_memory_and_the_same_strides(view: torch.Tensor) -> None:
    made = copy_value(view)
    assert torch.equal(made, view)
    assert made.stride() == view.stride()
    shared = made.untyped_storage().data_ptr() == view.untyped_storage().data_ptr()
    assert not shared or not view.numel()


def test_elements_in_gaps_of_a_strided_tensor_are_copied() -> None:
    """Compiled code that reads there reads what it reads in a script."""
    made = copy_value(torch.ones(3).as_strided((2,), (2,)))
    assert made.as_strided((3,), (1,)).tolist() == [1.0, 1.0, 1.0]
    inner = copy_value(X.view(4, 6)[1:3, 2:4])
    assert inner.as_strided((8,), (1,)).tolist() == X[8:16].tolist()
