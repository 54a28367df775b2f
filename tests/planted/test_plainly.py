"""What fails without guard pages is reduced to what fails without them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PLANTED = Path(__file__).with_name("two_faults.py")

pytestmark = pytest.mark.aoti


MODEL = """
import sys
import torch
import two_faults

class TwoFaults(torch.nn.Module):
    def forward(self, values):
        most = torch.ops.faulty.all_but_one(torch.sin(values)).amax()
        hidden = torch.cos(values + most).cumsum(1)
        return torch.copysign(hidden, values).sum(0)

values = torch.arange(2048.0).reshape(32, 64) / 2048
torch.export.save(torch.export.export(TwoFaults(), (values,)), sys.argv[1])
"""
"""It dies of an over-read where that shows, else of the null read after it."""


def test_steady_crash_is_not_reduced_to_a_crash_only_with_guard_pages(
    tmp_path: Path,
) -> None:
    model, out = tmp_path / "model.pt2", tmp_path / "out"
    export = [sys.executable, "-W", "ignore", "-c", MODEL, str(model)]
    subprocess.run(export, cwd=PLANTED.parent, check=True, timeout=300)
    words = ["--until", "crash", "--preload", str(PLANTED), "--out", str(out)]
    done = subprocess.run(
        [sys.executable, "-m", "shrinkfx", str(model), *words],
        cwd=ROOT,
        capture_output=True,
        check=False,
        text=True,
        timeout=1500,
    )
    assert done.returncode == 0, done.stderr
    assert (
        "without guard pages, the reduced program does not fail in every run: "
        "backtracking to a step that does"
    ) in done.stderr
    summary = json.loads((out / "summary.json").read_text())
    assert summary["verified"] == {"runs": 3, "failed": 3}
    assert summary["operators"]["after"] == 1
    assert summary["minimal"]
    assert not summary["guard_pages"]["repro_needs_them"]
    assert "copysign" in (out / "repro.py").read_text()
    ran = subprocess.run(
        [sys.executable, str(out / "repro.py")],
        cwd=tmp_path,
        capture_output=True,
        check=False,
        timeout=300,
    )
    assert ran.returncode < 0
