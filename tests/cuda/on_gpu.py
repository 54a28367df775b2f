"""Programs that fail on a GPU, and the command that reduces them, for tests here."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import torch

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PRELOAD = HERE / "lying_operator.py"


class Haystack(torch.nn.Module):
    """Healthy layers around a sum over what the lying operator promised."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(32, 32) for _ in range(6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for i, layer in enumerate(self.layers):
            x = torch.nn.functional.gelu(layer(x)) + x
            if i == 3:
                x = x * torch.ops.cuda_test.few(x).sin().sum()
        return x


def export(module: torch.nn.Module, path: Path, device: str) -> Path:
    torch.manual_seed(0)
    module = module.to(device).eval()
    with torch.no_grad():
        program = torch.export.export(module, (torch.randn(4, 32, device=device),))
    torch.export.save(program, path)
    return path


def export_haystack(path: Path, device: str = "cuda") -> Path:
    """Export the haystack, whose operator this process must know."""
    if not hasattr(torch.ops.cuda_test, "few"):
        spec = importlib.util.spec_from_file_location("lying_operator", PRELOAD)
        assert spec is not None
        assert spec.loader is not None
        spec.loader.exec_module(importlib.util.module_from_spec(spec))
    return export(Haystack(), path, device)


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "shrinkfx", *arguments]
    return subprocess.run(
        command, cwd=ROOT, timeout=1200, check=False, capture_output=True, text=True
    )


def holds_context(pid: int) -> bool:
    """Ask the driver; NVML alone opens its devices, too (driver 580)."""
    command = ["nvidia-smi", "--query-compute-apps=pid", "--format=csv,noheader"]
    done = subprocess.run(
        command, timeout=60, check=True, capture_output=True, text=True
    )
    return str(pid) in done.stdout.split()
