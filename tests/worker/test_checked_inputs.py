"""A package that was built as ever checks its inputs where a variable says so."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from shrinkfx.check.client.server import Server
from shrinkfx.failure.classify import classify_ending
from shrinkfx.failure.signature import Kind
from shrinkfx.protocol.requests import CheckOptions, CheckOriginal, Request

pytestmark = pytest.mark.aoti


class Wave(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.sin() + 1


def test_kept_package_refuses_wrong_strides_with_sanity_checks(tmp_path: Path) -> None:
    exported = torch.export.export(Wave(), (torch.rand(4, 6),))
    torch.export.save(exported, tmp_path / "model.pt2")
    torch.save((torch.rand(6, 4).t(),), tmp_path / "inputs.pt")
    kept = CheckOptions(package=str(tmp_path / "kept.pt2"))
    guarded = CheckOptions(package=kept.package, sanity=True)
    with Server(model=tmp_path / "model.pt2", inputs=tmp_path / "inputs.pt") as server:
        seen = [
            classify_ending(server.ask(Request(CheckOriginal(), options))).signature
            for options in (kept, guarded)
        ]
    assert [s and s.kind for s in seen] == [Kind.MISMATCH, Kind.CHECK_INPUTS]
    assert "unmatched stride" in str(seen[1])
