"""A second failure, of small sizes alone, is not what the result is reduced to."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

TWO_FAULTS = """
from torch._inductor.codegen.cpp import CppOverrides, CppVecOverrides
from torch._inductor.lowering import lowerings
from torch._inductor.virtualized import V
import torch

aten = torch.ops.aten
right = lowerings[aten.erfc.default]


def small_is_wrong(x):
    count = 1
    for size in x.get_size():
        count *= int(size)
    result = right(x)
    return lowerings[aten.add.Tensor](result, 1.0) if count < 9 else result


lowerings[aten.erfc.default] = small_is_wrong
CppVecOverrides.erfc = staticmethod(lambda x: f"({x} + {x})")
"""
"""Vectorised code of ``erfc`` is wrong; below 9 elements its lowering is, too."""


class Hidden(nn.Module):
    """``erfc`` among others."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(torch.erfc(x.sin()) * 0.5).cos()


@pytest.mark.aoti
def test_result_fails_by_the_first_of_two_faults(tmp_path: Path) -> None:
    plant, model, out = (tmp_path / n for n in ("two_faults.py", "model.pt2", "out"))
    plant.write_text(TWO_FAULTS)
    torch.export.save(torch.export.export(Hidden(), (torch.randn(8, 32),)), model)
    asked = [str(model), "--until", "mismatch", "--preload", str(plant)]
    run = [sys.executable, "-m", "shrinkfx", *asked, "--out", str(out)]
    said = subprocess.run(run, capture_output=True, text=True, check=True, timeout=500)
    summary = json.loads((out / "summary.json").read_text())
    assert summary["operators"]["after"] == 1
    program = torch.export.load(out / "minimal.pt2")
    (x,) = program.example_inputs[0]
    assert x.numel() >= 9, said.stdout
    assert "fail for another reason: with cpp.simdlen=1" in said.stdout + said.stderr
