"""A second program with a bug that a first run has reduced: all is real."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import shrinkfx
from shrinkfx.errors import KnownFailure

pytestmark = [pytest.mark.aoti, pytest.mark.every_run]

PLANTED = """
import torch
from torch._inductor.lowering import lowerings

def refuse(*args):
    raise RuntimeError("planted: no lowering")

lowerings[torch.ops.aten.atan.default] = refuse
"""


class First(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.exp() + (x + 1).atan()


class Second(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return (x.softmax(0).atan() * 2).sum(0)


def test_second_program_of_a_bug_is_recognized(tmp_path: Path) -> None:
    preload = tmp_path / "planted.py"
    preload.write_text(PLANTED)
    inputs, first, second = (torch.ones(4, 6),), tmp_path / "first", tmp_path / "second"
    reduced = shrinkfx.minify(
        First(), args=inputs, preload=[preload], out=first, quiet=True, no_explain=True
    )
    assert reduced.operators[1] == 1
    assert [*reduced.summary["pattern"]["operators"]] == ["aten.atan.default"]
    with pytest.raises(KnownFailure, match=r"known bug: .*planted: no lowering"):
        shrinkfx.minify(
            Second(),
            args=inputs,
            preload=[preload],
            known=[first],
            out=second,
            quiet=True,
        )
    (run,) = shrinkfx.api.runs(second)
    assert run.status == "known"
    with pytest.raises(KnownFailure) as again:
        shrinkfx.api.resume(second)
    assert again.value.folders == [str(first)]
