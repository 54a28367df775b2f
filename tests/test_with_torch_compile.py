"""Runs with ``--backend inductor``, of programs that are compiled for real."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from support.cases import ROOT

pytestmark = pytest.mark.aoti


class Program(torch.nn.Module):
    """An operator that fails among some that do not."""

    def __init__(self, needle: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.needle = needle

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return self.needle(x.relu() + 1, y - 1).tanh()


def scan(x: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.pad(x, (1, 0)).cumsum(1)


def overwrite(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.slice_scatter(y, x, 1, 0, x.shape[1])


def save(folder: Path, needle: Callable[..., torch.Tensor], columns: int) -> list[str]:
    """Save a program, and inputs that are wider than those of its export."""
    columns_of_x = torch.export.Dim("columns", min=2, max=32)
    shapes = {1: columns_of_x}, {1: 2 * columns_of_x + 1}

    def inputs(columns: int) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.ones(2, columns), torch.ones(2, 2 * columns + 1)

    is_dynamic = needle is overwrite
    example = inputs(4) if is_dynamic else (torch.ones(2, 4), torch.ones(2, 4))
    exported = torch.export.export(
        Program(needle), example, dynamic_shapes=shapes if is_dynamic else None
    )
    torch.export.save(exported, folder / "model.pt2")
    torch.save(inputs(columns) if is_dynamic else example, folder / "inputs.pt")
    return ["model.pt2", "--inputs", "inputs.pt"]


def python(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "ignore", *arguments]
    return subprocess.run(
        command, cwd=folder, timeout=900, check=False, capture_output=True, text=True
    )


@pytest.mark.parametrize(
    ("case", "needle", "operators", "kind"),
    [
        ("compile_lowering_raises", scan, 2, "compile-error"),
        pytest.param(
            *("mismatch_derived_dim", overwrite, 1, "mismatch"),
            marks=pytest.mark.every_run,
        ),
        ("crash_null_read", torch.copysign, 1, "crash"),
    ],
)
def test_repro_fails_with_torch_compile_alone(
    tmp_path: Path,
    case: str,
    needle: Callable[..., torch.Tensor],
    operators: int,
    kind: str,
) -> None:
    preload = "--preload", str(ROOT / "repros" / case / "planted.py")
    options = "--backend", "inductor", "--until", kind, "--guard-pages", "off"
    unneeded = "--inductor-config", "cpp.threads=1"
    files = *save(tmp_path, needle, 9), *preload
    arguments = [*files, *options, *unneeded, "--out", "out"]
    done = python(tmp_path, "-m", "shrinkfx", *arguments)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
    summary: dict[str, Any] = json.loads((tmp_path / "out/summary.json").read_text())
    assert summary["operators"]["after"] == operators
    assert summary["kind"] == kind
    recorded = "the program was compiled with AOTInductor, with which it also fails."
    for name in ("ISSUE.md", "repro.py"):
        words = (tmp_path / "out" / name).read_text().replace("#", " ").split()
        text = " ".join(words)
        assert (recorded in text) == (kind != "compile-error")
        assert "AOTInductor" not in text.replace(recorded, "")
    repro = python(tmp_path, "out/repro.py")
    assert repro.returncode not in (0, 125), repro.stdout
    text = (tmp_path / "out/repro.py").read_text()
    assert "torch.compile(" in text
    assert "cpp.threads" not in text.partition("import torch")[2]
