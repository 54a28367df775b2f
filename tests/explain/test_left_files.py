"""What a real minimum says under each flag, and the files that it leaves."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from shrinkfx.check.client.server import Server
from shrinkfx.check.oracle import CheckClient, Limits
from shrinkfx.explain.guide import run_guide
from shrinkfx.explain.reduced_program import ReducedProgram
from shrinkfx.failure.signature import Kind, Signature, Stage
from shrinkfx.findings.record import Outcome
from shrinkfx.program.candidate import Candidate
from shrinkfx.program.skeleton import Skeleton
from shrinkfx.protocol.answers import Description
from shrinkfx.protocol.choices import Build
from shrinkfx.protocol.requests import CheckOptions, Describe

PICKED = torch.tensor([1, 9])


class Strays(nn.Module):
    def forward(self, x: Tensor, i: Tensor) -> Tensor:
        return x.tanh()[i]


@pytest.mark.aoti
@pytest.mark.every_run
def test_guide_of_an_index_out_of_bounds(tmp_path: Path) -> None:
    path, inputs = tmp_path / "model.pt2", tmp_path / "inputs.pt"
    x = torch.arange(4.0)
    torch.export.save(torch.export.export(Strays(), (x, PICKED % 4)), path)
    torch.save((x, PICKED), inputs)
    options = CheckOptions(reference=False, build=Build.FAST)
    target = Signature(Kind.ASSERT, Stage.RUN, "index out of bounds")
    with Server(model=path, inputs=inputs) as server:
        client = CheckClient(server, Limits(600.0, 8 << 30), options)
        told = client.ask(Describe()).answer
        assert isinstance(told, Description)
        skeleton = Skeleton.from_json(json.loads(Path(told.skeleton).read_text()))
        minimum = ReducedProgram(client, Candidate.from_skeleton(skeleton), target)
        found = run_guide(minimum, (), tmp_path / "explain")
    outcomes = [row.outcome for row in found.rows]
    assert outcomes == [
        *[Outcome.SAME] * 3,
        *[Outcome.NOT_ASKED] * 2,
        *[Outcome.SAME] * 3,
    ]
    assert f"in {found.last_launch}" in found.rows[2].output
    left = tmp_path / "explain"
    (kernel,) = left.glob("sources/*.kernel.cpp")
    assert "AOTI_TORCH_CHECK" in kernel.read_text()
    assert found.rows[2].output[0].startswith(f"raised at {kernel.name}:")
    assert "[__output_code]" in (left / "inductor.log").read_text()
    assert list(left.glob("trace/*.log"))
