"""What operators are wrong about in eager is asked about where it has to stay."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from shrinkfx.worker.checking.check import find_unexpected_mismatches
from shrinkfx.worker.graph.rebuild import RebuiltCandidate
from shrinkfx.worker.model import Inputs


@pytest.fixture(name="half", scope="module")
def _half() -> Iterator[None]:
    """An operator with strides of its own in long rows, and an empty result of one."""
    with torch.library._scoped_library("turned", "DEF") as lib:
        lib.define("half(Tensor x) -> Tensor")
        lib.impl("half", turned, "CompositeExplicitAutograd")
        lib.impl("half", torch.empty_like, "Meta")
        yield


def turned(x: torch.Tensor) -> torch.Tensor:
    if x.shape[-1] == 1:
        return x[..., :0].clone()
    if x.shape[-1] == 3:
        raise RuntimeError("three is too many")
    return x.t().contiguous().t() if x.shape[-1] > 4 else x.clone()


class Half(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        half: torch.Tensor = torch.ops.turned.half(x.sin())
        return half.cos()


def made(*shape: int) -> RebuiltCandidate:
    inputs = Inputs((torch.randn(shape),), {})
    return RebuiltCandidate(torch.export.export(Half(), inputs.args), inputs, inputs)


STRIDES, SHAPE = "turned.half.default: strides", "turned.half.default: shape"


@pytest.mark.usefixtures("half")
@pytest.mark.parametrize(
    ("shape", "expected", "told"),
    [
        ((2, 8), STRIDES, ""),
        (
            (2, 8),
            SHAPE,
            f"an operator disagrees with its fake kernel in another way: {STRIDES}",
        ),
        (
            (2, 1),
            STRIDES,
            f"an operator disagrees with its fake kernel in another way: {SHAPE}",
        ),
        ((2, 1), SHAPE, ""),
        ((2, 4), STRIDES, f"no operator is wrong about its result; sought: {STRIDES}"),
        ((1, 8), STRIDES, f"no operator is wrong about its result; sought: {STRIDES}"),
        ((2, 3), STRIDES, ""),  # the check says that eager raises
    ],
)
def test_only_unexpected_fake_kernel_mismatches_are_reported(
    shape: tuple[int, ...], expected: str, told: str
) -> None:
    assert find_unexpected_mismatches(made(*shape), [expected]) == told
