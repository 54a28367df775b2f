"""On a real GPU: kernels that die, and what is read off their words."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from shrinkfx.check.client.server import Server
from shrinkfx.check.oracle import Limits, Meter
from shrinkfx.check.script import ScriptRunner
from shrinkfx.failure.signature import Kind, Stage
from shrinkfx.failure.verdict import Observation

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here"),
]

SCRIPT = """
import os

os.environ["CUDA_LAUNCH_BLOCKING"] = "1"

import torch
import triton
import triton.language as tl


@triton.jit
def far(x, y, shift, block: tl.constexpr):
    place = tl.arange(0, block)
    tl.store(y + place, tl.load(x + place + shift))


@triton.jit
def trap(x, y, shift, block: tl.constexpr):
    place = tl.arange(0, block)
    value = tl.inline_asm_elementwise(
        "trap; mov.b32 $0, $1;", "=r,r", [tl.load(x + place)], tl.float32, False, 1
    )
    tl.store(y + place, value)


def launch(kernel):
    x = torch.ones(16, device="cuda")
    y = torch.empty_like(x)
    kernel[(4,)](x, y, 1 << 38, block=16)
    torch.cuda.synchronize()
    return y.cpu()


def index():
    place = torch.full((4096,), 9, device="cuda")
    y = torch.ones(4, device="cuda")[place]
    torch.cuda.synchronize()
    return y.cpu()


compiled = lambda: DOES
actual = compiled()
print("no longer fails")
"""


@pytest.fixture(name="runner", scope="module")
def _runner() -> Iterator[ScriptRunner]:
    with Server(environment=None) as server:
        yield ScriptRunner(server, Limits(120.0, 32 << 30), Meter())


def seen(runner: ScriptRunner, folder: Path, does: str) -> Observation:
    script = folder / "repro.py"
    script.write_text(SCRIPT.replace("DOES", does))
    return runner.run([script], fresh=True)


@pytest.mark.parametrize(
    ("does", "kinds"),
    [
        ("launch(far)", {Kind.IMA}),
        ("launch(trap)", {Kind.IMA, Kind.CRASH}),  # 719 or 715, by the driver
        ("index()", {Kind.ASSERT}),
        ("torch.empty(1 << 50, device='cuda')", {Kind.OOM}),
    ],
)
def test_kernel_failure_is_classified_by_its_message(
    runner: ScriptRunner, tmp_path: Path, does: str, kinds: set[Kind]
) -> None:
    first = seen(runner, tmp_path, does).signature
    assert first is not None
    assert first.kind in kinds, first
    assert first.stage is Stage.RUN
    again = seen(runner, tmp_path, does).signature
    assert first.admits(again)


def test_gpu_works_after_kernel_failures(runner: ScriptRunner, tmp_path: Path) -> None:
    assert seen(runner, tmp_path, "torch.ones(4, device='cuda').sum()").is_conclusive
