"""The devices of a program and of the machine."""

from __future__ import annotations

import os
import runpy
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from support.exported import Call
from torch._subclasses.fake_tensor import FakeTensorMode

from shrinkfx.check.client.server import Server
from shrinkfx.errors import LoadError
from shrinkfx.protocol.choices import Backend
from shrinkfx.protocol.requests import Describe, ForkServer, Request, RunCommand, Setup
from shrinkfx.worker.aoti import backend as aoti
from shrinkfx.worker.loading.devices import (
    VISIBLE,
    archive_on,
    choose_backend,
    describe_gpu,
    device_type,
    gpu_of,
    gpu_properties,
    gpus_of,
    is_for_cuda,
    read_cuda_storages_on,
    save_for_cuda,
    select_gpus,
    show_one_gpu,
    wanted_gpu,
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


def setup(tmp_path: Path, model: Path, **options: str | None) -> Setup:
    return Setup(str(tmp_path), model=str(model), **options)  # type: ignore[arg-type]


def test_program_saved_for_cuda_has_device_type_cuda(cuda_program: Path) -> None:
    assert device_type(str(cuda_program)) == "cuda"
    assert [f.name for f in cuda_program.parent.iterdir()] == ["model.pt2"]


def test_interpreter_loads_cuda_program_onto_the_cpu(
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
        (Backend.INDUCTOR, None, Backend.INDUCTOR),
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
def test_cuda_program_uses_the_interpreter_without_a_gpu(
    tmp_path: Path, cuda_program: Path
) -> None:
    assert choose_backend(setup(tmp_path, cuda_program)) is Backend.INTERPRETER
    with pytest.raises(LoadError, match="no CUDA device") as caught:
        choose_backend(setup(tmp_path, cuda_program, backend=Backend.AOTI))
    assert "--backend" in str(caught.value.advice)


Gpus = Callable[[int], None]


@pytest.fixture(name="gpus")
def _gpus(monkeypatch: pytest.MonkeyPatch) -> Gpus:
    """Have torch count so many GPUs; none of them can be used."""

    def set_to(count: int) -> None:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: count)

    return set_to


def on_gpus(source: Path, target: Path, *numbers: int) -> Path:
    """Copy an archive with its devices on these GPUs by turns."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        for entry in old.infolist():
            pieces = old.read(entry).split(b'"type": "cuda", "index": 0')
            text = pieces[0]
            for place, piece in enumerate(pieces[1:]):
                number = numbers[place % len(numbers)]
                text += b'"type": "cuda", "index": %d' % number + piece
            new.writestr(entry.filename, text)
    return target


def test_gpus_of_a_program_are_read_from_its_archive(
    tmp_path: Path, cuda_program: Path
) -> None:
    assert gpus_of(str(cuda_program)) == {0}
    assert gpus_of(str(on_gpus(cuda_program, tmp_path / "a.pt2", 1))) == {1}
    assert gpus_of(str(on_gpus(cuda_program, tmp_path / "b.pt2", 0, 2))) == {0, 2}
    assert gpus_of(archive_on(str(cuda_program), tmp_path, "cpu")) == set()


def test_program_on_several_gpus_can_be_moved_to_another(
    tmp_path: Path, cuda_program: Path
) -> None:
    several = on_gpus(cuda_program, tmp_path / "several.pt2", 0, 2)
    moved = archive_on(str(several), tmp_path, "cuda:1")
    assert gpus_of(moved) == {1}
    assert archive_on(moved, tmp_path, "cuda:1") == moved


def test_cpu_tensors_of_a_program_are_not_moved_to_the_gpu(
    tmp_path: Path, cuda_program: Path
) -> None:
    mixed = tmp_path / "mixed.pt2"
    with zipfile.ZipFile(cuda_program) as old, zipfile.ZipFile(mixed, "w") as new:
        for entry in old.infolist():
            gpu, cpu = b'"type": "cuda", "index": 0', b'"type": "cpu", "index": null'
            new.writestr(entry.filename, old.read(entry).replace(gpu, cpu, 1))
    moved = archive_on(str(mixed), tmp_path, "cuda:3")
    with zipfile.ZipFile(moved) as archive:
        text = b"".join(map(archive.read, archive.namelist()))
    assert b'"type": "cpu", "index": null' in text
    assert gpus_of(moved) == {3}


def test_program_on_several_gpus_is_refused_with_advice(
    tmp_path: Path, cuda_program: Path, gpus: Gpus
) -> None:
    gpus(4)
    several = on_gpus(cuda_program, tmp_path / "several.pt2", 0, 2)
    with pytest.raises(LoadError, match="is on cuda:0 and cuda:2") as caught:
        choose_backend(setup(tmp_path, several))
    assert "--device cuda:0 moves all of it there" in str(caught.value.advice)
    asked = setup(tmp_path, several, device="cuda:1")
    assert choose_backend(asked) is Backend.AOTI
    assert wanted_gpu(asked) == 1


def test_available_gpu_is_preferred_to_the_interpreter(
    tmp_path: Path, cuda_program: Path, gpus: Gpus
) -> None:
    gpus(1)
    assert choose_backend(setup(tmp_path, cuda_program)) is Backend.AOTI
    for backend in (Backend.INTERPRETER, Backend.INDUCTOR):
        by_name = setup(tmp_path, cuda_program, backend=backend)
        assert choose_backend(by_name) is backend


@pytest.mark.parametrize(
    ("count", "said", "advice"),
    [
        (0, "there is no CUDA device", "say --device cuda,"),
        (1, "there is one CUDA device, cuda:0", "say --device cuda:0"),
        (4, "there are 4 CUDA devices, cuda:0 to cuda:3", "say --device cuda:0"),
    ],
)
def test_missing_gpu_is_refused(
    tmp_path: Path, cuda_program: Path, gpus: Gpus, count: int, said: str, advice: str
) -> None:
    gpus(count)
    asked = setup(tmp_path, cuda_program, device="cuda:9")
    with pytest.raises(LoadError, match="is to run on cuda:9") as caught:
        choose_backend(asked)
    assert said in caught.value.reason
    assert str(caught.value.advice).startswith(advice)


@pytest.mark.parametrize(
    ("count", "backend", "device", "said"),
    [
        (1, Backend.AUTO, "cuda:1", "CUDA_VISIBLE_DEVICES='5'"),
        (1, Backend.INTERPRETER, "cuda:1", "uses no GPU"),
        (0, Backend.INTERPRETER, "cpu", "CUDA kernels"),
        (0, Backend.INDUCTOR, "", "needs CUDA, and there is no CUDA device"),
    ],
)
def test_device_that_does_not_fit_the_backend_is_refused(
    tmp_path: Path,
    cuda_program: Path,
    gpus: Gpus,
    monkeypatch: pytest.MonkeyPatch,
    count: int,
    backend: Backend,
    device: str,
    said: str,
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5")
    gpus(count)
    with pytest.raises(LoadError, match=said):
        choose_backend(setup(tmp_path, cuda_program, backend=backend, device=device))


def test_cuda_storages_are_read_onto_the_chosen_device(tmp_path: Path) -> None:
    saved = tmp_path / "x.pt"
    torch.save(torch.arange(3), saved)
    with zipfile.ZipFile(saved) as old, zipfile.ZipFile(tmp_path / "y.pt", "w") as new:
        for entry in old.infolist():
            data = old.read(entry)
            if entry.filename.endswith("data.pkl"):
                data = data.replace(b"X\x03\x00\x00\x00cpu", b"X\x06\x00\x00\x00cuda:7")
            new.writestr(entry.filename, data)
    read_cuda_storages_on("cpu")
    try:
        there = torch.load(tmp_path / "y.pt", weights_only=True)
    finally:
        read_cuda_storages_on("")
    assert there.tolist() == [0, 1, 2]


@pytest.mark.parametrize(("number", "index"), [(0, -1), (1, 1), (3, 3)])
def test_gpu_index_of_a_program_is_that_of_its_weights(number: int, index: int) -> None:
    exported = torch.export.export(Model(), (torch.ones(5, 4),))
    assert gpu_of(exported) == -1
    with FakeTensorMode(allow_non_fake_inputs=True):
        for name in exported.state_dict:
            exported.state_dict[name] = torch.empty(3, device=f"cuda:{number}")
    assert gpu_of(exported) == index


def test_package_is_loaded_with_its_gpu_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def load_package(path: str, device_index: int = -1) -> object:
        asked.append((path, device_index))
        return load_package

    monkeypatch.setattr(torch._inductor, "aoti_load_package", load_package)
    monkeypatch.setenv("TMPDIR", os.environ.get("TMPDIR", "/tmp"))
    for gpu in (-1, 1):
        package = aoti.Package(tmp_path / "m.pt2", tmp_path, None, gpu)
        assert aoti.load(package) is load_package
    assert asked == [(f"{tmp_path}/m.pt2", -1), (f"{tmp_path}/m.pt2", 1)]


def test_cuda_program_is_loaded_onto_the_cpu_with_device_cpu(
    tmp_path: Path, cuda_program: Path
) -> None:
    program = load(setup(tmp_path, cuda_program, device="cpu"))
    values = (*program.original.state_dict.values(), *program.example.args)
    assert {value.device.type for value in values} == {"cpu"}


@pytest.mark.processes
def test_removed_environment_variable_is_not_set_for_cuda(
    cuda_program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTORCH_NO_CUDA_MEMORY_CACHING", "1")
    with Server(
        model=cuda_program,
        backend=Backend.INTERPRETER,
        environment={"PYTORCH_NO_CUDA_MEMORY_CACHING": ""},
    ) as server:
        assert dict(server.ready.environment) == {"CUDA_LAUNCH_BLOCKING": "1"}
        assert server.ready.gpu == ""
        environ = Path(f"/proc/{server.pid}/environ").read_bytes()
    assert b"PYTORCH_NO_CUDA_MEMORY_CACHING" not in environ


# --- GPUs as nvidia-smi lists them


SMI = """#!/bin/sh
echo "$@" >> {log}
{does}
"""
H100 = "NVIDIA H100 80GB HBM3, 9.0, 81559 MiB, 580.95.05"


@pytest.fixture(name="smi")
def _smi(
    tmp_path: Path, install_tool: Callable[[str, str], Path]
) -> Callable[[str], Path]:
    """Install a program of that name, which notes what it is asked."""

    def write(does: str) -> Path:
        log = tmp_path / "asked"
        install_tool("nvidia-smi", SMI.format(log=log, does=does))
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


def test_server_sees_its_first_gpu_and_each_fork_its_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, gpus: Gpus
) -> None:
    # A fork takes the name that it is told.
    gpus(4)
    monkeypatch.setenv(VISIBLE, "4,5,6,7")
    names = select_gpus(("2", "0"))
    assert names == ("6", "4")
    assert os.environ[VISIBLE] == "6"
    task = ForkServer(str(tmp_path), "mark:1", servers=2, gpu=1)
    show_one_gpu(names[task.gpu])
    assert os.environ[VISIBLE] == "4"


@pytest.mark.parametrize(
    ("count", "said"), [(0, "there is no CUDA device"), (2, "there are 2 CUDA devices")]
)
def test_missing_gpus_are_refused(
    monkeypatch: pytest.MonkeyPatch, gpus: Gpus, count: int, said: str
) -> None:
    monkeypatch.setenv(VISIBLE, "before")
    gpus(count)
    with pytest.raises(LoadError, match="--gpus 0,9: there is no cuda") as caught:
        select_gpus(("0", "9"))
    assert said in caught.value.reason
    assert os.environ[VISIBLE] == "before"


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
    torch.export.save(
        torch.export.export(
            Call(lambda x: torch.ops.gpu_test.tell(x)), (torch.ones(2),)
        ),
        model,
    )
    said = RunCommand(("sh", "-c", f'echo "command: ${{{VISIBLE}-unset}}"'), ".")
    with Server(model=model, preloads=[str(preload)]) as server:
        described = server.ask(Request(Describe()))
        commanded = server.ask(Request(said))
    assert "operator: ''" in described.log, described
    assert f"command: {given or 'unset'}" in commanded.log
