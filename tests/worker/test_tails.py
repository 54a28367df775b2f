"""What lies behind a short result is known, and decides nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.export import export

from shrinkfx.protocol.answers import Answer, Checked, Difference, Invalid
from shrinkfx.protocol.requests import CheckOptions
from shrinkfx.worker.checking.check import add_tails, require_same_failure
from shrinkfx.worker.eager.intermediates import FILLINGS
from shrinkfx.worker.graph.rebuild import RebuiltCandidate
from shrinkfx.worker.model import Inputs

SHORT = "shrinkfx_tails.narrow.default"


@torch.library.custom_op("shrinkfx_tails::narrow", mutates_args=())
def narrow(x: Tensor) -> Tensor:
    return x.to(torch.int32)


@narrow.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x, dtype=torch.int64)


class Narrow(torch.nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = torch.ops.shrinkfx_tails.narrow(x) + 1
        return result


def as_declared(x: Tensor) -> list[int]:
    """Read the operator's result as compiled code does: to its declared end."""
    result = torch.ops.shrinkfx_tails.narrow(x)
    memory = torch.empty(0, dtype=torch.uint8).set_(result.untyped_storage())
    values: list[int] = memory[: 8 * x.numel()].view(torch.int64).tolist()
    return values


def ways(
    compiled: Callable[..., Any], x: Tensor, tails: Sequence[str], **more: Any
) -> list[Callable[..., Any]]:
    given = Inputs((x,), {})
    run = RebuiltCandidate(export(Narrow(), (x,)), given, given)
    return add_tails(compiled, run, CheckOptions(tails=tuple(tails), **more))


@pytest.mark.parametrize("length", [1, 3, 4000])
def test_compiled_code_reads_known_bytes_past_a_short_result(length: int) -> None:
    x = torch.full((length,), 3.0)
    zeros, others = (way(x) for way in ways(as_declared, x, [SHORT]))
    pairs, odd = [3 + (3 << 32)] * (length // 2), length % 2
    behind = length - length // 2 - odd
    assert zeros == [*pairs, *[3] * odd, *[0] * behind]
    one = int.from_bytes(bytes([FILLINGS[1]]) * 8, "little")
    glued = 3 + (one >> 32 << 32)
    assert others == [*pairs, *[glued] * odd, *[one] * behind]


def test_filled_result_keeps_values_and_strides() -> None:
    x = torch.randn(3, 5).t()
    for way in ways(torch.ops.shrinkfx_tails.narrow, x, [SHORT]):
        result = way(x)
        assert torch.equal(result, x.to(torch.int32))
        assert result.stride() == x.to(torch.int32).stride()


def test_tails_are_filled_only_if_requested() -> None:
    assert ways(as_declared, torch.ones(2), ()) == [as_declared]
    recorded = ways(as_declared, torch.ones(1), [SHORT], compiled_view="folder")
    assert [way(torch.ones(1)) for way in recorded] == [[1]]  # one run, with zeros


PASSES, NAN = Checked(), Checked(Difference("nan", "inf"))
WRONG = Checked(Difference("values", "by 3"))
TYPES = Invalid("eager fails in the same way")


def raising(text: str) -> Callable[[], Answer]:
    def run() -> Answer:
        raise RuntimeError(text)

    return run


def giving(answer: Answer) -> Callable[[], Answer]:
    return lambda: answer


@pytest.mark.parametrize(
    ("runs", "sought", "answer"),
    [
        ([giving(PASSES)], "mismatch", PASSES),
        ([giving(WRONG)], "assert", WRONG),
        ([giving(WRONG), giving(WRONG)], "mismatch", WRONG),
        ([giving(PASSES), raising("index")], "assert", PASSES),
        ([giving(WRONG), raising("index")], "assert", WRONG),
        ([raising("index"), giving(PASSES)], "assert", PASSES),
        ([giving(WRONG), giving(TYPES)], "mismatch", None),
        ([giving(WRONG), giving(NAN)], "nan", None),
        ([giving(WRONG), raising("index")], "mismatch", None),
        ([raising("index"), raising("size")], "assert", None),
    ],
)
def test_failure_counts_only_if_each_filling_gives_the_same_one(
    runs: list[Callable[[], Answer]], sought: str, answer: Answer | None
) -> None:
    found = require_same_failure(runs, sought)
    if answer is None:
        assert isinstance(found, Invalid)
        assert "memory after the end of a result" in found.why
    else:
        assert found is answer


def test_exception_with_each_filling_is_raised() -> None:
    with pytest.raises(RuntimeError, match="0 <= tmp2 < 5L"):
        require_same_failure(
            [raising("0 <= tmp1 < 5L"), raising("0 <= tmp2 < 5L")], "assert"
        )


def test_exception_ends_a_check_that_looks_for_a_wrong_result() -> None:
    with pytest.raises(RuntimeError, match="index"):
        require_same_failure([raising("index"), giving(WRONG)], "mismatch")
