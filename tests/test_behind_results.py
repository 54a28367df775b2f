"""A result of half the declared bytes, reduced with AOTInductor."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

from shrinkfx import minify

pytestmark = pytest.mark.aoti

OPERATOR = """
import torch
from torch import Tensor


@torch.library.custom_op("half_as_wide::bucket", mutates_args=())
def bucket(x: Tensor) -> Tensor:
    return (x.abs() * 4).clamp(0, 15).to(torch.int32)


@bucket.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x, dtype=torch.int64)
"""


class Looked(torch.nn.Module):
    """Takes two numbers of 4 bytes for an index of 8."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(16, 8)

    def forward(self, x: Tensor) -> Tensor:
        found = torch.ops.half_as_wide.bucket(torch.relu(x))
        return torch.tanh(self.table(found).sum(1) + x)


def test_repro_of_a_short_result_fails_for_any_adjacent_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    preload = tmp_path / "bucketing.py"
    preload.write_text(OPERATOR)
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("bucketing")
    torch.manual_seed(0)
    program = torch.export.export(Looked().eval(), (torch.randn(6, 8),))
    torch.export.save(program, tmp_path / "model.pt2")
    found = minify(tmp_path / "model.pt2", preload=[str(preload)], out=tmp_path / "out")
    assert found.operators[1] <= 2
    assert any("is read as" in sentence for sentence in found.cause)
    for byte in (0x00, 0x5A):  # glibc fills what it hands out with the complement
        ran = subprocess.run(
            [sys.executable, str(found.repro)],
            env={**os.environ, "MALLOC_PERTURB_": str(byte ^ 0xFF)},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert ran.returncode != 0
        assert "index out of bounds" in ran.stderr
