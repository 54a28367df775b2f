"""What is told of eager's values is so in any run."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from shrinkfx.worker.eager.intermediates import SEED
from shrinkfx.worker.explaining.compiled_view import collect_eager_ranges
from shrinkfx.worker.graph.rebuild import RebuiltCandidate
from shrinkfx.worker.model import Inputs


class Draws(nn.Module):
    """A few numbers of the input, of chance, of both, and of whatever lies there."""

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        drawn = torch.randint(0, 1 << 40, (4,))
        lies_there = torch.empty(3, dtype=torch.int64)
        return x + 1, drawn, x + drawn, drawn * 0, lies_there * 1


def ranges(second_seed: int) -> dict[str, tuple[int, int]]:
    inputs = Inputs((torch.arange(4),), {})
    exported = torch.export.export(Draws(), inputs.args)
    found = collect_eager_ranges(
        RebuiltCandidate(exported, inputs, inputs), second_seed
    )
    return {each.node: (each.least, each.most) for each in found}


def test_random_values_have_no_range() -> None:
    told = ranges(SEED + 1)
    assert told["add"] == (1, 4)
    assert told["mul"] == (0, 0)  # whatever was drawn
    assert {"x", "add", "mul"} == told.keys()


def test_random_values_drawn_with_the_same_seed_have_a_range() -> None:
    assert {"randint", "add_1"} <= ranges(SEED).keys()


class Counts(nn.Module):
    steps: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("steps", torch.tensor([1, 5]))

    def forward(self, x: Tensor) -> Tensor:
        self.steps.add_(x)
        return self.steps * 2


@pytest.mark.parametrize("seed", [3, 4])
def test_collecting_ranges_does_not_advance_the_random_generator(seed: int) -> None:
    torch.manual_seed(seed)
    expected = torch.rand(2)
    torch.manual_seed(seed)
    ranges(SEED)
    assert torch.equal(torch.rand(2), expected)
