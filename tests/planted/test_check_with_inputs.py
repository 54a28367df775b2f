"""A user's command and the inputs it is handed, from the first run to the last."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from shrinkfx import minify

HOLDS = """
import sys

import pytest
import torch

inputs = torch.load(sys.argv[2], weights_only=True)
assert type(inputs) is tuple
exported = torch.export.load(sys.argv[1])
result = exported.module()(*inputs)
assert all(value.isfinite().all() for value in result)
sys.exit("aten.cosh" not in str(exported.graph))
"""


class Nested(torch.nn.Module):
    """Takes a list and a keyword: its inputs are no flat tuple."""

    def forward(
        self, pair: list[torch.Tensor], *, scale: torch.Tensor
    ) -> tuple[torch.Tensor]:
        return (torch.cosh(torch.sin(pair[0]) + pair[1]) * scale,)


@pytest.mark.slow
def test_command_gets_flat_inputs_and_minimal_inputs_fail(tmp_path: Path) -> None:
    args = ([torch.randn(3), torch.randn(3)],)
    kwargs = {"scale": torch.ones(3)}
    model, inputs = tmp_path / "model.pt2", tmp_path / "inputs.pt"
    torch.export.save(torch.export.export(Nested(), args, kwargs), model)
    torch.save({"args": args, "kwargs": kwargs}, inputs)
    script, out = tmp_path / "holds.py", tmp_path / "out"
    script.write_text(HOLDS)
    command = f"{sys.executable} -W ignore {script}"
    reduction = minify(
        model, check=f"{command} {{}} {{inputs}}", inputs=inputs, out=out
    )
    assert reduction.status == "reduced"
    assert reduction.operators == (4, 1)
    assert "minimal_inputs.pt" in reduction.repro.read_text()
    summary = json.loads((out / "summary.json").read_text())
    assert "minimal_inputs.pt" in summary["files"]
    assert not [*out.glob("original*")]
    pair = [str(out / "minimal.pt2"), str(out / "minimal_inputs.pt")]
    done = subprocess.run([*command.split(), *pair], check=False, timeout=600)
    assert done.returncode == 0
