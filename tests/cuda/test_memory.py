"""On a real GPU: red zones, pages, compute-sanitizer, warm children."""

from __future__ import annotations

import ctypes
import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from shrinkfx.check.client.server import GUARDED_WORKER, Server
from shrinkfx.check.oracle import CheckClient, Limits
from shrinkfx.failure.classify import classify_ending
from shrinkfx.failure.readers import memory
from shrinkfx.failure.signature import Kind, Stage
from shrinkfx.failure.verdict import Observation
from shrinkfx.protocol.answers import Ending
from shrinkfx.protocol.choices import Guard
from shrinkfx.protocol.requests import CheckOptions, CheckOriginal, Describe, Request
from shrinkfx.worker.cuda_memory import first, red_zones

HERE = Path(__file__).parent
PRELOAD = HERE / "lying_operator.py"

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here"),
]
LIMITS = Limits(180.0, 32 << 30)
needs_nvcc = pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc here")


class Few(torch.nn.Module):
    """A sum over what an operator has promised and not delivered."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        total: torch.Tensor = torch.ops.cuda_test.few(x).sin().sum()
        return x + total


def save(module: torch.nn.Module, path: Path) -> Path:
    if not hasattr(torch.ops.cuda_test, "few"):
        spec = importlib.util.spec_from_file_location("lying_operator", PRELOAD)
        assert spec is not None
        assert spec.loader is not None
        spec.loader.exec_module(importlib.util.module_from_spec(spec))
    x = torch.randn(4, 32, device="cuda")
    torch.export.save(torch.export.export(module.cuda(), (x,)), path)
    return path


@pytest.fixture(name="faulty")
def _faulty(tmp_path: Path) -> Iterator[Server]:
    model = save(Few(), tmp_path / "few.pt2")
    command = GUARDED_WORKER
    with Server(model=model, preloads=[str(PRELOAD)], command=command) as server:
        yield server


@pytest.fixture(name="healthy")
def _healthy(tmp_path: Path) -> Iterator[Server]:
    layers = torch.nn.Sequential(torch.nn.Linear(32, 33), torch.nn.GELU())
    model = save(layers.eval(), tmp_path / "healthy.pt2")
    with Server(model=model, command=GUARDED_WORKER) as server:
        yield server


def check(server: Server, guard: Guard) -> tuple[Ending, Observation]:
    client = CheckClient(server, LIMITS, CheckOptions(guard_pages=guard))
    ending = client.ask(CheckOriginal())
    return ending, classify_ending(ending)


def script(side: int) -> subprocess.CompletedProcess[str]:
    """Run the overrun beside zones, as a repro runs."""
    library = str(red_zones.build())
    command = [sys.executable, first.__file__, library, str(side)]
    place = HERE / "overrun.py"
    return subprocess.run(
        [*command, str(place)],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


@needs_nvcc
def test_write_into_a_red_zone_is_reported() -> None:
    """The tensor has 100 bytes, and no page begins before byte 112."""
    done = script(list(Guard).index(Guard.AFTER))
    assert done.returncode != 0
    said = "write 4 bytes past the end of a tensor of 100 bytes"
    assert said in done.stderr, done.stdout + done.stderr


@needs_nvcc
@pytest.mark.parametrize("guard", [Guard.AFTER, Guard.BEFORE])
def test_healthy_program_passes_between_red_zones(
    healthy: Server, guard: Guard
) -> None:
    assert healthy.ready.no_guard_pages == ""
    ending, seen = check(healthy, guard)
    assert seen.signature is None, ending.log
    assert seen.invalid == seen.unresolved == ""
    assert memory.find_red_zone_note(ending.log)


@needs_nvcc
def test_out_of_bounds_access_shows_with_guard_pages_or_red_zones(
    faulty: Server,
) -> None:
    ending, seen = check(faulty, Guard.AFTER)
    assert seen.signature is not None, ending.log
    pages = "pages" in memory.find_red_zone_note(ending.log)
    assert seen.signature.kind in ({Kind.IMA} if pages else {Kind.IMA, Kind.NAN})


def test_compute_sanitizer_report_names_the_kernel(
    faulty: Server,
) -> None:
    ending, seen = check(faulty, Guard.MEMCHECK)
    if seen.unresolved:
        pytest.skip(seen.unresolved)
    report = memory.parse_sanitizer_report(ending.log)
    assert report is not None, ending.log
    assert report.kernel.startswith("triton_")
    assert report.line > 0
    assert report.thread
    assert report.block
    assert seen.signature is not None
    assert (seen.signature.kind, seen.signature.stage) == (Kind.IMA, Stage.RUN)


def test_healthy_program_passes_under_compute_sanitizer(healthy: Server) -> None:
    ending, seen = check(healthy, Guard.MEMCHECK)
    if seen.unresolved:
        pytest.skip(seen.unresolved)
    assert seen.signature is None, ending.log


def test_checks_agree_after_an_out_of_bounds_access(faulty: Server) -> None:
    faulty.ask(Request(Describe()))
    endings = [check(faulty, Guard.OFF)[1] for _ in range(6)]
    kinds = {seen.signature and seen.signature.kind for seen in endings}
    assert len(kinds) == 1


def test_driver_has_the_functions_to_map_pages() -> None:
    """What red_zones.cu asks of it; told apart, where a driver has none."""
    driver = ctypes.CDLL("libcuda.so.1")
    for name in ("cuMemAddressReserve", "cuMemCreate", "cuMemMap", "cuMemSetAccess"):
        assert hasattr(driver, name)
