"""Which GPUs there are, as a stand-in for nvidia-smi says."""

from __future__ import annotations

import os
import runpy
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from shrinkfx.check.client.server import Server
from shrinkfx.errors import LoadError
from shrinkfx.protocol.requests import Describe, ForkServer, Request, RunCommand
from shrinkfx.worker.loading.devices import (
    VISIBLE,
    describe_gpu,
    gpu_properties,
    select_gpus,
)

SMI = """#!/bin/sh
echo "$@" >> {log}
{does}
"""
H100 = "NVIDIA H100 80GB HBM3, 9.0, 81559 MiB, 580.95.05"


@pytest.fixture(name="smi")
def _smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Put a program of that name first on the path; it notes what it is asked."""

    def write(does: str) -> Path:
        log, program = tmp_path / "asked", tmp_path / "nvidia-smi"
        program.write_text(SMI.format(log=log, does=does))
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
        return log

    return write


def test_gpu_is_described_by_nvidia_smi_output(smi: Callable[[str], Path]) -> None:
    log = smi(f"echo '{H100}'")
    assert gpu_properties(0) == {
        "GPU": "NVIDIA H100 80GB HBM3",
        "compute capability": "9.0",
        "GPU memory": "81559 MiB",
        "driver": "580.95.05",
    }
    asked = "--query-gpu=name,compute_cap,memory.total,driver_version"
    assert log.read_text().startswith(f"{asked} --format=csv,noheader -i 0")


@pytest.mark.parametrize(
    ("visible", "index", "name"),
    [("4,6", 1, "6"), ("GPU-8932f937, GPU-1", 0, "GPU-8932f937"), ("4,6", 0, "4")],
)
def test_gpu_index_is_resolved_by_cuda_visible_devices(
    smi: Callable[[str], Path],
    monkeypatch: pytest.MonkeyPatch,
    visible: str,
    index: int,
    name: str,
) -> None:
    monkeypatch.setenv(VISIBLE, visible)
    log = smi(f"echo '{H100}'")
    known = gpu_properties(index)
    assert log.read_text().rstrip().endswith(f"-i {name}")
    said = describe_gpu(index, known)
    assert said == f"NVIDIA H100 80GB HBM3 as cuda:{index}, with {VISIBLE}={visible}"


@pytest.mark.parametrize("does", ["exit 9", "echo 'No devices were found'", "echo"])
def test_gpu_properties_are_empty_without_nvidia_smi_output(
    smi: Callable[[str], Path], does: str
) -> None:
    smi(does)
    assert gpu_properties(0) == {}


def test_property_unsupported_by_the_driver_is_left_out(
    smi: Callable[[str], Path],
) -> None:
    smi("echo 'NVIDIA T4, [N/A], [Insufficient Permissions], 470.1'")
    assert gpu_properties(0) == {"GPU": "NVIDIA T4", "driver": "470.1"}


def counted(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)


def test_server_sees_its_first_gpu_and_each_fork_its_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # What settles in a fork is the worker's: it takes the name that it is told.
    from shrinkfx.worker.loading import devices

    counted(monkeypatch, 4)
    monkeypatch.setenv(VISIBLE, "4,5,6,7")
    names = select_gpus(("2", "0"))
    assert names == ("6", "4")
    assert os.environ[VISIBLE] == "6"
    task = ForkServer(str(tmp_path), "mark:1", servers=2, gpu=1)
    devices.show_one_gpu(names[task.gpu])
    assert os.environ[VISIBLE] == "4"


@pytest.mark.parametrize(
    ("count", "said"), [(0, "there is no CUDA device"), (2, "there are 2 CUDA devices")]
)
def test_missing_gpus_are_refused(
    monkeypatch: pytest.MonkeyPatch, count: int, said: str
) -> None:
    monkeypatch.setenv(VISIBLE, "before")
    counted(monkeypatch, count)
    with pytest.raises(LoadError, match="--gpus 0,9: there is no cuda") as caught:
        select_gpus(("0", "9"))
    assert said in caught.value.reason
    assert os.environ[VISIBLE] == "before"


class Plain(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = torch.ops.gpu_test.tell(x)
        return y


@pytest.mark.parametrize("given", [None, "0,1"])
def test_children_that_check_a_cpu_program_see_no_gpu_and_commands_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, given: str | None
) -> None:
    """PyTorch initializes a GPU that it sees, and the children of a server cannot."""
    if given is None:
        monkeypatch.delenv(VISIBLE, raising=False)
    else:
        monkeypatch.setenv(VISIBLE, given)
    preload, model = Path(__file__).with_name("telling_gpus.py"), tmp_path / "model.pt2"
    runpy.run_path(str(preload))
    torch.export.save(torch.export.export(Plain(), (torch.ones(2),)), model)
    said = RunCommand(("sh", "-c", f'echo "command: ${{{VISIBLE}-unset}}"'), ".")
    with Server(model=model, preloads=[str(preload)]) as server:
        described = server.ask(Request(Describe()))
        commanded = server.ask(Request(said))
    assert "operator: ''" in described.log, described
    assert f"command: {given or 'unset'}" in commanded.log
