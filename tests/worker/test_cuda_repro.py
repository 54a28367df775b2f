"""Users' Triton kernels where there is no GPU, in a program and in its repro."""

from __future__ import annotations

import base64
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from shrinkfx.check.client.server import Server
from shrinkfx.check.oracle import Limits, Meter
from shrinkfx.check.script import ScriptRunner
from shrinkfx.failure.signature import Kind, Stage
from shrinkfx.protocol.answers import Checked, Description
from shrinkfx.protocol.choices import Backend, Probe
from shrinkfx.protocol.requests import CheckOptions, CheckOriginal, Describe, Request
from shrinkfx.worker.loading.devices import save_for_cuda

KERNEL = """
import base64, io
import torch
import triton
import triton.language as tl
from torch.library import triton_op, wrap_triton

SLOPE = {slope}

@triton.jit
def scale_kernel(x, y, block: tl.constexpr):
    place = tl.arange(0, block)
    tl.store(y + place, SLOPE * tl.load(x + place))

@triton_op("scripted::scale", mutates_args=())
def scale(x: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(x)
    wrap_triton(scale_kernel)[(1,)](x, y, block=16)
    return y
"""
PRINTED = """
class Repro(torch.nn.Module):
    def forward(self, x):
        return (torch.ops.scripted.scale.default(x),)

model = Repro()
args = (torch.ones({count}).to("cuda"),)
program = torch.export.export(model, args)
"""
EMBEDDED = """
program = torch.export.load(io.BytesIO(base64.b85decode({archive!r})))
model = program.module()
args = (torch.ones(12).to("cuda"),)
"""
RUN = """
with torch.no_grad():
    package = torch._inductor.aoti_compile_and_package(program)
    compiled = torch._inductor.aoti_load_package(package)
    expected = model(*args)
    actual = compiled(*args)
    torch.testing.assert_close(actual, expected)
print("no longer fails")
"""


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server(environment=None, backend=Backend.INTERPRETER) as started:
        yield started


def run(
    server: Server, folder: Path, text: str, probe: Probe, *, fresh: bool = False
) -> object:
    script = folder / "repro.py"
    script.write_text(text)
    runner = ScriptRunner(server, Limits(300, 8 << 30), Meter(), probe)
    seen = runner.run([script], fresh=fresh)
    assert not seen.invalid
    assert not seen.unresolved, seen.unresolved
    return seen.signature and (seen.signature.kind, seen.signature.stage)


def test_printed_repro_is_checked_by_the_given_probe(
    server: Server, tmp_path: Path
) -> None:
    constant = KERNEL.format(slope="tl.constexpr(0.5)")
    fits, spills = (constant + PRINTED.format(count=n) + RUN for n in (16, 12))
    for probe in (Probe.REAL, Probe.HINTS):
        stage = Stage.COMPILE if probe is Probe.HINTS else Stage.RUN
        assert run(server, tmp_path, fits, probe) is None
        assert run(server, tmp_path, spills, probe) == (Kind.IMA, stage)
    assert run(server, tmp_path, fits, Probe.COMPILE) is None
    plain = KERNEL.format(slope="0.5") + PRINTED.format(count=16) + RUN
    wrong = (Kind.COMPILE_ERROR, Stage.COMPILE)
    for fresh in (False, True):
        assert run(server, tmp_path, plain, Probe.COMPILE, fresh=fresh) == wrong


def test_embedded_cuda_program_is_read_without_cuda(
    server: Server, tmp_path: Path
) -> None:
    class Double(torch.nn.Module):
        factor: torch.Tensor

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor]:
            return (x * self.factor,)

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("factor", torch.full((12,), 2.0))

    archive = tmp_path / "model.pt2"
    save_for_cuda(torch.export.export(Double(), (torch.ones(12),)), archive)
    embedded = EMBEDDED.format(archive=base64.b85encode(archive.read_bytes()))
    text = KERNEL.format(slope="0.5") + embedded + RUN
    assert run(server, tmp_path, text, Probe.REAL) is None


def test_user_kernel_runs_in_eager_when_its_program_is_described(
    tmp_path: Path,
) -> None:
    operators, model = tmp_path / "operators.py", tmp_path / "model.pt2"
    operators.write_text(KERNEL.format(slope="tl.constexpr(0.5)"))
    # In a process of its own: the operator is registered under its name for good.
    export = "\n".join(
        [
            "import torch, operators",
            "class Scale(torch.nn.Module):",
            "    def forward(self, x):",
            "        return torch.ops.scripted.scale(x).relu()",
            "program = torch.export.export(Scale(), (torch.ones(16),))",
            "torch.export.save(program, 'model.pt2')",
        ]
    )
    subprocess.run([sys.executable, "-c", export], cwd=tmp_path, check=True)
    with Server(
        model=model,
        preloads=[str(operators)],
        device="cuda",
        backend=Backend.INTERPRETER,
    ) as server:
        described = server.ask(Request(Describe())).answer
        assert isinstance(described, Description)
        assert described.eager_error == ""
        ran = server.ask(Request(CheckOriginal(), CheckOptions(probe=Probe.REAL)))
        assert (ran.stage, ran.answer) == (Stage.DONE, Checked())
