"""A tensor as an expression is that tensor again."""

from __future__ import annotations

import pytest
import torch

from shrinkfx.worker.printing.graph import write_tensor

TENSORS = {
    "one element, odd stride": torch.arange(4.0).as_strided((1, 1), (2, 2)),
    "a column of few": torch.arange(6.0).as_strided((3, 1), (1, 2)),
    "gaps": torch.arange(12.0).reshape(3, 4)[:, ::2],
    "expanded": torch.arange(3.0)[:, None].expand(3, 2),
    "turned": torch.arange(6).reshape(2, 3).t(),
    "no dims": torch.tensor(1 + 2j),
    "empty": torch.empty(0, 3, dtype=torch.bfloat16),
    "quarter": torch.linspace(-1, 1, 5).to(torch.float8_e4m3fn),
}


@pytest.mark.parametrize("name", TENSORS)
def test_exact_expression_evaluates_to_the_tensor(name: str) -> None:
    tensor = TENSORS[name]
    again = eval(write_tensor(tensor).exact, {"torch": torch})
    assert again.dtype == tensor.dtype
    layout = zip(tensor.shape, tensor.stride(), again.stride(), strict=True)
    assert all(a == b for size, a, b in layout if size > 1)
    assert torch.equal(again.to(torch.complex64), tensor.to(torch.complex64))
