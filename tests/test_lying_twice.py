"""An operator that lies in each of its calls, reduced with AOTInductor."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest
import torch
from torch import Tensor

from shrinkfx import minify

pytestmark = pytest.mark.aoti

OPERATOR = """
import torch
from torch import Tensor


@torch.library.custom_op("lying_twice::turn", mutates_args=())
def turn(x: Tensor, *, times: int) -> Tensor:
    return (x * times).t().contiguous().t()


@turn.register_fake
def _(x: Tensor, *, times: int) -> Tensor:
    return x.new_empty(x.shape)
"""


class Turned(torch.nn.Module):
    """Reads two results of an operator, each of which lies otherwise than is said."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        turn = torch.ops.lying_twice.turn
        return turn(x, times=3).sin() + x, turn(x.cos(), times=2).tanh() * x


def test_second_call_of_a_mismatching_operator_is_no_second_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    preload = tmp_path / "turning.py"
    preload.write_text(OPERATOR)
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("turning")
    program = torch.export.export(Turned(), (torch.randn(4, 6),))
    torch.export.save(program, tmp_path / "model.pt2")
    found = minify(tmp_path / "model.pt2", preload=[str(preload)], out=tmp_path / "out")
    assert found.operators[1] <= 2
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["without_it"] == "passed"
    assert summary["other_failures"] == []
    assert summary["cause"][0].startswith("lying_twice.turn.default")
    assert "times=" in summary["cause"][0]
    assert "as its fake kernel declares it" in summary["cause"][1]
