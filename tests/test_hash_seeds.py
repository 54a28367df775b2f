"""A pass that goes through a set of strings, from a program that passes to a repro."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from torch import Tensor

pytestmark = pytest.mark.aoti

PASS = """\
import torch
import torch._inductor.config
from torch._inductor.custom_graph_pass import CustomGraphPass


class TurnRound(CustomGraphPass):
    def __call__(self, graph):
        if next(iter({"left", "right"})) != "FIRST":
            return
        for node in graph.nodes:
            if node.target is torch.ops.aten.sub.Tensor:
                node.args = node.args[::-1]

    def uuid(self):
        return None


torch._inductor.config.post_grad_custom_post_pass = TurnRound()
"""

ORDER = "print(next(iter({'left', 'right'})))"

SEED = "PYTHONHASHSEED"


class Difference(torch.nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return torch.tanh(torch.relu(x) - torch.cos(y)) * 2


def ran(
    *words: str, cwd: Path, seed: str = "", timeout: float = 900.0
) -> subprocess.CompletedProcess[str]:
    """Run Python with a hash seed, or with one of its own."""
    bare: Mapping[str, str] = {k: v for k, v in os.environ.items() if k != SEED}
    return subprocess.run(
        [sys.executable, *words],
        cwd=cwd,
        env={**bare, **({SEED: seed} if seed else {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout,
        check=False,
    )


def test_repro_of_a_failure_under_one_hash_seed_sets_the_seed(
    tmp_path: Path,
) -> None:
    first = {
        n: ran("-c", ORDER, cwd=tmp_path, seed=n).stdout for n in map(str, range(9))
    }
    passes = next(seed for seed in first if first[seed] != first["1"])
    (tmp_path / "turning.py").write_text(PASS.replace("FIRST", first["1"].strip()))
    inputs = torch.randn(4, 5), torch.randn(4, 5)
    torch.export.save(torch.export.export(Difference(), inputs), tmp_path / "model.pt2")
    asked = "-m", "shrinkfx", "model.pt2", "--preload", "turning.py", "--out"

    done = ran(*asked, "out", "--env", f"{SEED}=1", cwd=tmp_path, seed=passes)
    summary = json.loads((tmp_path / "out/summary.json").read_text())
    assert done.returncode == 0, done.stdout
    assert "3 of 3 runs of the repro fail" in done.stdout
    assert summary["environment"]["set"][SEED] == "1"
    for seed in (passes, ""):
        repro = ran("out/repro.py", cwd=tmp_path, seed=seed)
        assert repro.returncode != 0, repro.stdout
        assert "AssertionError" in repro.stdout
