"""CUDA programs on a machine that has no GPU."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from shrinkfx.errors import LoadError
from shrinkfx.protocol.choices import Backend
from shrinkfx.protocol.requests import Setup
from shrinkfx.worker.loading.devices import (
    choose_backend,
    device_type,
    is_for_cuda,
    save_for_cuda,
)
from shrinkfx.worker.loading.load import load

NO_GPU = pytest.mark.skipif(torch.cuda.is_available(), reason="needs no GPU")


class Model(torch.nn.Module):
    offset: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 3)
        self.register_buffer("offset", torch.arange(3.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        zeros = torch.zeros(x.shape[0], 3, device=x.device)
        y: torch.Tensor = self.linear(x)
        return y + self.offset + zeros


@pytest.fixture
def cuda_program(tmp_path: Path) -> Path:
    dim = torch.export.Dim("batch", min=2, max=8)
    exported = torch.export.export(
        Model(), (torch.ones(5, 4),), dynamic_shapes=({0: dim},)
    )
    path = tmp_path / "model.pt2"
    save_for_cuda(exported, path)
    return path


def setup(tmp_path: Path, model: Path, **options: str) -> Setup:
    return Setup(str(tmp_path), model=str(model), **options)  # type: ignore[arg-type]


def test_program_saved_for_cuda_is_one(cuda_program: Path) -> None:
    assert device_type(str(cuda_program)) == "cuda"
    assert [f.name for f in cuda_program.parent.iterdir()] == ["model.pt2"]


@NO_GPU
def test_program_saved_for_cuda_cannot_be_loaded_by_torch(cuda_program: Path) -> None:
    with pytest.raises((RuntimeError, AssertionError)):
        torch.export.load(cuda_program)


def test_cuda_program_is_loaded_onto_the_cpu(
    tmp_path: Path, cuda_program: Path
) -> None:
    program = load(setup(tmp_path, cuda_program, backend=Backend.INTERPRETER))
    exported = program.original
    found = {t.device.type for t in exported.state_dict.values()}
    found |= {t.device.type for t in program.example.args}
    for node in exported.graph.nodes:
        if isinstance(value := node.meta.get("val"), torch.Tensor):
            found.add(value.device.type)
        if "device" in node.kwargs:
            found.add(torch.device(node.kwargs["device"]).type)
    assert found == {"cpu"}
    assert len(exported.range_constraints) == 1
    result = exported.module()(torch.ones(5, 4))
    linear = exported.state_dict
    expected = torch.ones(5, 4) @ linear["linear.weight"].T + linear["linear.bias"]
    torch.testing.assert_close(result, expected + torch.arange(3.0))


@NO_GPU
@pytest.mark.parametrize(
    ("asked", "device", "chosen"),
    [
        (Backend.AUTO, None, Backend.AOTI),
        (Backend.AUTO, "cpu", Backend.AOTI),
        (Backend.AUTO, "cuda", Backend.INTERPRETER),
        (Backend.INTERPRETER, None, Backend.INTERPRETER),
        (Backend.AOTI, None, Backend.AOTI),
    ],
)
def test_backend_follows_device_and_machine(
    tmp_path: Path, asked: Backend, device: str | None, chosen: Backend
) -> None:
    path = tmp_path / "model.pt2"
    torch.export.save(torch.export.export(Model(), (torch.ones(5, 4),)), path)
    asked_for = Setup(str(tmp_path), model=str(path), device=device, backend=asked)
    assert choose_backend(asked_for) is chosen
    assert is_for_cuda(asked_for) == (chosen is Backend.INTERPRETER)


@NO_GPU
def test_cuda_program_is_for_the_interpreter(
    tmp_path: Path, cuda_program: Path
) -> None:
    assert choose_backend(setup(tmp_path, cuda_program)) is Backend.INTERPRETER
    with pytest.raises(LoadError, match="no CUDA device") as caught:
        choose_backend(setup(tmp_path, cuda_program, backend=Backend.AOTI))
    assert "--backend" in caught.value.advice


def test_interpreter_is_not_for_the_cpu(tmp_path: Path, cuda_program: Path) -> None:
    with pytest.raises(LoadError, match="CUDA kernels"):
        choose_backend(
            setup(tmp_path, cuda_program, backend=Backend.INTERPRETER, device="cpu")
        )
