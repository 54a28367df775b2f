"""On a real GPU: where a run is, which allocator it has, and what is told of that."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path

import pytest
import torch
from on_gpu import HERE, PRELOAD, export, export_haystack, run

from shrinkfx.check.client.server import Server
from shrinkfx.failure.classify import classify_ending
from shrinkfx.failure.signature import Kind
from shrinkfx.protocol.choices import Backend
from shrinkfx.protocol.requests import CheckOptions, CheckOriginal, Request

NO_CACHING = "PYTORCH_NO_CUDA_MEMORY_CACHING"
TELLS = HERE / "telling_operator.py"

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here"),
]
two_gpus = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")


class Tells(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = torch.ops.cuda_test.tell(x).sin()
        return y


@pytest.fixture(name="allocator_model")
def _allocator_model(tmp_path: Path) -> Path:
    if not hasattr(torch.ops.cuda_test, "tell"):
        spec = importlib.util.spec_from_file_location("telling_operator", TELLS)
        assert spec is not None
        assert spec.loader is not None
        spec.loader.exec_module(importlib.util.module_from_spec(spec))
    return export(Tells(), tmp_path / "model.pt2", "cuda")


def test_absent_gpu_is_refused(allocator_model: Path, tmp_path: Path) -> None:
    options = ["--preload", str(TELLS), "--out", str(tmp_path / "out")]
    done = run(str(allocator_model), "--device", "cuda:99", *options)
    assert done.returncode == 2
    assert "is to run on cuda:99, and there " in done.stderr
    done = run(str(allocator_model), "--gpus", "0,99", *options)
    assert done.returncode == 2
    assert "--gpus 0,99: there is no cuda:99" in done.stderr


def test_server_reports_the_gpu_and_uses_aoti(allocator_model: Path) -> None:
    with Server(model=allocator_model, preloads=[str(TELLS)]) as server:
        assert server.ready.backend == Backend.AOTI
        assert torch.cuda.get_device_name(0) in server.ready.gpu
        capability = ".".join(map(str, torch.cuda.get_device_capability(0)))
        assert server.ready.versions["compute capability"] == capability


def reserved(server: Server, **environment: str) -> int:
    """Ask a child how much memory its caching allocator holds when eager runs."""
    options = CheckOptions(environment=environment)
    ending = server.ask(Request(CheckOriginal(), options))
    assert classify_ending(ending).signature is None, ending
    said = re.findall(r"reserved (\d+) on cuda", ending.log)
    assert said
    return max(map(int, said))


def test_caching_allocator_is_off_unless_a_check_enables_the_allocator(
    allocator_model: Path,
) -> None:
    with Server(model=allocator_model, preloads=[str(TELLS)]) as server:
        assert reserved(server) == 0
        assert reserved(server, **{NO_CACHING: ""}) > 0
        assert reserved(server) == 0


def test_removed_variable_enables_the_caching_allocator(
    allocator_model: Path,
) -> None:
    environment = {NO_CACHING: ""}
    with Server(
        model=allocator_model, preloads=[str(TELLS)], environment=environment
    ) as server:
        assert NO_CACHING not in server.ready.environment
        assert reserved(server) > 0


def test_run_reports_the_gpu_and_the_allocator(tmp_path: Path) -> None:
    model, out = export_haystack(tmp_path / "model.pt2"), tmp_path / "out"
    options = ["--until", "ima", "--preload", str(PRELOAD), "--gpus", "0"]
    done = run(str(model), *options, "--jobs", "2", "--out", str(out))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "as cuda:0" in done.stderr
    assert "without the caching allocator" in done.stderr
    summary = json.loads((out / "summary.json").read_text())
    assert summary["versions"]["GPU"] == torch.cuda.get_device_name(0)
    script = (out / "repro.py").read_text()
    assert "compute capability" in script
    assert f'os.environ["{NO_CACHING}"]' in script
    assert torch.cuda.get_device_name(0) in (out / "ISSUE.md").read_text()


@two_gpus
def test_program_is_reduced_on_the_second_gpu(tmp_path: Path) -> None:
    model, out = export_haystack(tmp_path / "model.pt2"), tmp_path / "out"
    options = ["--until", "ima", "--preload", str(PRELOAD), "--device", "cuda:1"]
    done = run(str(model), *options, "--out", str(out))
    assert done.returncode == 0, done.stdout + done.stderr
    script = (out / "repro.py").read_text()
    assert "device_index=1" in script
    assert '"cuda:0"' not in script
    summary = json.loads((out / "summary.json").read_text())
    assert summary["verified"] == {"runs": 3, "failed": 3}


@two_gpus
def test_checks_are_spread_over_two_gpus(tmp_path: Path) -> None:
    model, out = export_haystack(tmp_path / "model.pt2"), tmp_path / "out"
    options = ["--until", "ima", "--preload", str(PRELOAD), "--gpus", "0,1"]
    done = run(str(model), *options, "--out", str(out))
    assert done.returncode == 0, done.stdout + done.stderr
    summary = json.loads((out / "summary.json").read_text())
    assert summary["kind"] == Kind.IMA
    assert summary["operators"]["after"] <= 2
