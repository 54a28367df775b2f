"""What a real minimum says under each flag, and the files that it leaves."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from support.whole_programs import reduced_program
from torch import Tensor, nn

from shrinkfx.explain.guide import run_guide
from shrinkfx.failure.signature import Kind, Signature, Stage
from shrinkfx.findings.record import Outcome
from shrinkfx.protocol.choices import Build
from shrinkfx.protocol.requests import CheckOptions

PICKED = torch.tensor([1, 9])


class Strays(nn.Module):
    def forward(self, x: Tensor, i: Tensor) -> Tensor:
        return x.tanh()[i]


@pytest.mark.aoti
@pytest.mark.every_run
def test_guide_of_an_index_out_of_bounds(tmp_path: Path) -> None:
    x = torch.arange(4.0)
    with reduced_program(
        tmp_path,
        Strays(),
        (x, PICKED % 4),
        target=Signature(Kind.ASSERT, Stage.RUN, "index out of bounds"),
        failing=(x, PICKED),
        options=CheckOptions(build=Build.FAST),
    ) as minimum:
        found = run_guide(minimum, (), tmp_path / "explain")
    outcomes = [row.outcome for row in found.rows]
    assert outcomes == [
        *[Outcome.SAME] * 3,
        *[Outcome.NOT_TESTED] * 2,
        *[Outcome.SAME] * 3,
    ]
    assert f"in {found.last_launch}" in found.rows[2].output
    left = tmp_path / "explain"
    (kernel,) = left.glob("sources/*.kernel.cpp")
    assert "AOTI_TORCH_CHECK" in kernel.read_text()
    assert found.rows[2].output[0].startswith(f"raised at {kernel.name}:")
    assert "[__output_code]" in (left / "inductor.log").read_text()
    assert list(left.glob("trace/*.log"))
