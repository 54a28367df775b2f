"""Programs with lengths, reduced with AOTInductor: small, and such as eager takes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import Tensor

from shrinkfx import minify

pytestmark = pytest.mark.aoti

PLANTED = """
import torch
from torch._inductor import lowering


def refuses(*operands, **more):
    raise RuntimeError("planted: no segments today")


lowering.lowerings[torch.ops.aten.segment_reduce.default] = refuses
"""


class Segments(torch.nn.Module):
    """Adds up rows ``(rows, width)`` by lengths ``(segments,)``."""

    def forward(self, x: Tensor, lengths: Tensor, y: Tensor) -> Tensor:
        segments = torch.segment_reduce(x.sin(), "sum", lengths=lengths)
        return (segments * 2).cosh() + y


def test_lengths_input_shrinks_together_with_its_rows(tmp_path: Path) -> None:
    args = torch.randn(30, 6), torch.tensor([4, 9, 2, 15]), torch.randn(4, 6)
    preload = tmp_path / "refuses_segments.py"
    preload.write_text(PLANTED)
    torch.export.save(torch.export.export(Segments(), args), tmp_path / "model.pt2")
    out = tmp_path / "out"
    found = minify(
        tmp_path / "model.pt2", preload=[str(preload)], out=out, no_explain=True
    )
    assert found.operators == (5, 1)
    script = found.repro.read_text()
    assert "args = (torch.ones((1,)), torch.ones((1,), dtype=torch.int64))" in script
    summary = json.loads((out / "summary.json").read_text())
    assert summary["minimal_by_kind"]["sizes"] == "1-minimal"
    assert summary["checks"]["by_verdict"].get("invalid", 0) == 0
    assert summary["checks"]["total"] <= 12
