"""Memory errors of compiled programs that are silent, until there are guard pages."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import lying_operators
import pytest
import torch
from support.exported import Call

from shrinkfx.check.client.server import GUARDED_WORKER, Server
from shrinkfx.check.oracle import CheckClient, Limits
from shrinkfx.failure.classify import classify_ending
from shrinkfx.failure.readers.memory import parse_asan_report
from shrinkfx.failure.signature import MEMORY_FAULT
from shrinkfx.failure.verdict import Observation
from shrinkfx.protocol.answers import Built
from shrinkfx.protocol.choices import Build, Guard, Step
from shrinkfx.protocol.requests import CheckOptions, CheckOriginal

RUNS = 20
PRELOAD = str(Path(lying_operators.__file__))

pytestmark = pytest.mark.aoti


class Healthy(torch.nn.Module):
    """Ends of buffers that are no multiple of a vector, in compiled and other code."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 5, 3, padding=1)
        self.linear = torch.nn.Linear(7, 3)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        hidden = torch.nn.functional.gelu(self.conv(image)).softmax(1)
        rows = self.linear(hidden.sum(1)).cumsum(1)
        return torch.cat([rows.sort(1).values, rows.flip(2)], 1).to(torch.bfloat16)


def save(module: torch.nn.Module, *args: torch.Tensor, path: Path) -> Path:
    with torch.no_grad():
        torch.export.save(torch.export.export(module.eval(), args), path)
    return path


@pytest.fixture(name="compiler")
def _compiler(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[CheckClient]:
    """Compile once: every run takes the same package."""
    module, example, failing = request.param
    model = save(module, example, path=tmp_path / "model.pt2")
    inputs = tmp_path / "inputs.pt"
    torch.save((failing,), inputs)
    (tmp_path / "shrinkfx.py").write_text("raise RuntimeError('not of this name')")
    with Server(
        command=GUARDED_WORKER,
        model=model,
        inputs=inputs,
        preloads=[PRELOAD],
        cwd=tmp_path,
    ) as server:
        assert server.ready.no_guard_pages == ""
        options = CheckOptions(package=str(tmp_path / "package.pt2"))
        yield CheckClient(server, Limits(300.0, 8 << 30), options)


def runs(compiler: CheckClient, number: int) -> list[Observation]:
    return [compiler.run_input_program()[0] for _ in range(number)]


VALUES = torch.arange(2048.0).reshape(32, 64) / 2048


@pytest.mark.parametrize(
    "compiler",
    [
        pytest.param((lying_operators.OverRead(), VALUES, VALUES), id="over_read"),
        pytest.param(
            (lying_operators.SmallOverRead(), VALUES, VALUES), id="small_over_read"
        ),
        pytest.param(
            (lying_operators.SmallOverWrite(), VALUES, VALUES), id="small_over_write"
        ),
    ],
    indirect=True,
)
def test_silent_memory_error_fails_in_every_run_with_guard_pages(
    compiler: CheckClient,
) -> None:
    silent = runs(compiler, 3)
    assert not [s for s in silent if s.signature and s.signature.detail == MEMORY_FAULT]
    guarded = runs(compiler.with_options(guard_pages=Guard.AFTER), RUNS)
    texts = [s.signature.text for s in guarded if s.signature]
    assert len(texts) == RUNS, [observation.log for observation in guarded]
    assert all("just past the end of a tensor of" in text for text in texts), texts
    sanitized = compiler.with_options(package=None, sanitize=True, build=Build.FAST)
    ending = sanitized.ask(CheckOriginal(), fresh=True)
    assert ending.built == Built(Build.FAST, Step.LINK)  # in the fork, all of it
    report = parse_asan_report(ending.log)
    assert report is not None
    assert report.kernel.startswith("cpp_fused_")
    assert report.line > 0


@pytest.mark.parametrize(
    "compiler",
    [
        pytest.param(
            (
                Call(lambda values: values[values[:8].long() - 70]),
                torch.arange(70.0, 134.0),
                torch.arange(64.0),
            ),
            id="",
        )
    ],
    indirect=True,
)
def test_underrun_fails_with_guard_pages_before_tensors(
    compiler: CheckClient,
) -> None:
    """Eager refuses such an index; compiled code counts from the end, once."""
    compiler = compiler.with_options(
        reference=False, inductor={"assert_indirect_indexing": False}
    )
    (silent,) = runs(compiler.with_options(guard_pages=Guard.AFTER), 1)
    assert silent.signature is None
    guarded = runs(compiler.with_options(guard_pages=Guard.BEFORE), RUNS)
    texts = [s.signature.text for s in guarded if s.signature]
    assert len(texts) == RUNS, [observation.log for observation in guarded]
    assert all(" before the start of a tensor of" in text for text in texts), texts


@pytest.mark.parametrize(
    "compiler",
    [pytest.param((Healthy(), torch.ones(1, 3, 5, 7), torch.rand(1, 3, 5, 7)), id="")],
    indirect=True,
)
@pytest.mark.parametrize("side", [Guard.AFTER, Guard.BEFORE])
def test_healthy_program_passes_with_guard_pages(
    compiler: CheckClient, side: Guard
) -> None:
    ending = compiler.with_options(guard_pages=side).ask(CheckOriginal())
    assert ending.stage == "done", ending.log
    assert classify_ending(ending).signature is None
