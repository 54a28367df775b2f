"""A second failure, of small sizes alone, is not what the result is reduced to."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

SMALL_AND_VECTORISED = """
from torch._inductor.codegen.cpp import CppOverrides, CppVecOverrides
from torch._inductor.lowering import lowerings
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

SMALL_AND_LARGE = """
from torch._inductor.lowering import lowerings
import torch

aten = torch.ops.aten
right = lowerings[aten.erfc.default]


def sometimes_wrong(x):
    count = 1
    for size in x.get_size():
        count *= int(size)
    wrong = 1.0 if count < 9 else 2.0 if count >= 64 else 0.0
    return lowerings[aten.add.Tensor](right(x), wrong)


lowerings[aten.erfc.default] = sometimes_wrong
"""
"""From 64 elements on the lowering of ``erfc`` is wrong, and otherwise below 9."""


class Hidden(nn.Module):
    """``erfc`` among others."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(torch.erfc(x.sin()) * 0.5).cos()


@pytest.mark.aoti
@pytest.mark.parametrize(
    ("faults", "elements", "evidence"),
    [
        (SMALL_AND_VECTORISED, 9, "fail for another reason: with cpp.simdlen=1"),
        (SMALL_AND_LARGE, 64, "fails with size 32, passes with 16 and 17"),
    ],
)
def test_result_keeps_the_first_of_two_faults(
    faults: str, elements: int, evidence: str, tmp_path: Path
) -> None:
    plant, model, out = (tmp_path / n for n in ("two_faults.py", "model.pt2", "out"))
    plant.write_text(faults)
    torch.export.save(torch.export.export(Hidden(), (torch.randn(8, 32),)), model)
    asked = [str(model), "--until", "mismatch", "--preload", str(plant)]
    run = [sys.executable, "-m", "shrinkfx", *asked, "--out", str(out)]
    said = subprocess.run(run, capture_output=True, text=True, check=True, timeout=500)
    summary = json.loads((out / "summary.json").read_text())
    assert summary["operators"]["after"] == 1
    program = torch.export.load(out / "minimal.pt2")
    (x,) = program.example_inputs[0]
    assert x.numel() >= elements, said.stdout
    assert evidence in said.stdout + said.stderr
