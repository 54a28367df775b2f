"""The devices of a program, and CUDA programs on machines without a GPU.

An archive names devices in its JSON files (graph, weights) and in pickles (example
inputs). Both are rewritten, so that a CUDA program can be read on a machine without a
GPU, and a program in CPU memory can be saved as the CUDA program that it is.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import subprocess
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.export import ExportedProgram

from shrinkfx.errors import LoadError
from shrinkfx.protocol.choices import Backend
from shrinkfx.protocol.requests import Setup
from shrinkfx.worker.private_api.graph_api import pytree

_FIRST = 5
"""Torch's own devices have priorities of 10 to 30; lower ones come first."""


def gpus_of(model: str) -> set[int]:
    """Return the GPUs that a program uses, from its archive, without loading it.

    Returns:
        Their indices; an empty set for a CPU program, or if the archive cannot be read,
        which loading it will report.
    """
    found: set[int] = set()
    try:
        with zipfile.ZipFile(model) as archive:
            for name in archive.namelist():
                if name.endswith(".json"):
                    numbers = _GPU.findall(archive.read(name))
                    found |= {int(number or 0) for number in numbers}
    except (OSError, zipfile.BadZipFile, RuntimeError, ValueError, zlib.error):
        return set()
    return found


_GPU = re.compile(rb'"type": "cuda"(?:, "index": (\d+))?')
"""A GPU as ``torch/_export/serde/schema.py`` writes a ``Device``; without an index, or
with null, it is the first."""


def _is_gpu(value: Any) -> bool:
    is_device = isinstance(value, dict) and value.keys() == {"type", "index"}
    return is_device and value["type"] == "cuda"


def device_type(model: str) -> str:
    """Return ``cuda`` or ``cpu``, from the archive of a program, without loading it."""
    return "cuda" if gpus_of(model) else "cpu"


def gpu_of(exported: ExportedProgram) -> int:
    """Return the ``device_index`` with which to load a package of the program.

    Returns:
        -1 for the first GPU, which is the default, and for a CPU program.
    """
    values: list[Any] = [*exported.state_dict.values(), *exported.constants.values()]
    values += [node.meta.get("val") for node in exported.graph.nodes]
    for value in pytree.tree_leaves(values):
        if isinstance(value, torch.Tensor) and value.device.type == "cuda":
            return value.device.index or -1
    return -1


def is_for_cuda(setup: Setup) -> bool:
    """Return whether a program is for CUDA, by ``--device`` or by its own devices."""
    if setup.device:
        return setup.device.startswith("cuda")
    if setup.model is None:
        return False
    return setup.backend == Backend.INTERPRETER or device_type(setup.model) == "cuda"


def is_on_gpu(setup: Setup) -> bool:
    """Return whether programs run on a GPU; the back end must have been chosen."""
    return is_for_cuda(setup) and setup.backend != Backend.INTERPRETER


def choose_backend(setup: Setup) -> Backend:
    """Choose the back end: a compiler, or the interpreter for its CUDA kernels.

    Raises:
        LoadError: ``--backend``, ``--device`` or ``--gpus`` do not fit the program or
            the machine.
    """
    backend = Backend(setup.backend)
    model = setup.model or _NO_MODEL[backend is Backend.INTERPRETER]
    if not is_for_cuda(setup):
        moves = "--device cuda moves it"
        _refuse_gpus(setup, model, "it is for the CPU", moves)
        if backend is Backend.INTERPRETER and setup.device:
            reason = (
                "the interpreter runs CUDA kernels, and this program is for the CPU"
            )
            advice = "leave --device out, or say cuda"
            raise LoadError(model, reason, advice)
        return Backend.AOTI if backend is Backend.AUTO else backend
    index = wanted_gpu(setup)
    if backend is Backend.INTERPRETER:
        _refuse_gpus(setup, model, "the interpreter uses no GPU", "leave one out")
        if setup.device and index:
            reason = f"is for {setup.device}, and the interpreter uses no GPU"
            raise LoadError(model, reason, "say --device cuda")
        return backend
    if backend is Backend.AUTO and not torch.cuda.is_available():
        _refuse_gpus(setup, model, describe_gpu_count(), "leave it out")
        if setup.device and index and setup.model:
            require(index, model)
        return Backend.INTERPRETER
    if not torch.cuda.is_available():
        reason = f"needs CUDA, and {describe_gpu_count()}"
        without = " out: its kernels can be checked without a GPU"
        advice = f"leave --backend{without}"
        raise LoadError(model, reason, advice)
    require(index, model)
    return Backend.AOTI if backend is Backend.AUTO else backend


_NO_MODEL = "the script", "--backend interpreter"
"""The subject of messages if there is no program."""


def wanted_gpu(setup: Setup) -> int:
    """Return the index of the GPU that a CUDA program runs on.

    Raises:
        LoadError: the program uses several GPUs.
    """
    if setup.device:
        return int(setup.device.partition(":")[2] or 0)
    found = sorted(gpus_of(setup.model)) if setup.model else []
    if len(found) > 1:
        where = " and ".join(f"cuda:{index}" for index in found)
        reason = f"is on {where}, and a package runs on one GPU"
        there = " moves all of it there; check whether it still fails"
        advice = f"--device cuda:0{there}"
        raise LoadError(str(setup.model), reason, advice)
    return found[0] if found else 0


def _refuse_gpus(setup: Setup, model: str, reason: str, advice: str) -> None:
    """Refuse ``--gpus`` for a program without a GPU; scripts may use any device.

    Raises:
        LoadError: ``--gpus`` is given.
    """
    if setup.gpus and setup.model:
        conflict = f"is to be on GPUs {','.join(setup.gpus)}: {reason}"
        raise LoadError(model, conflict, advice)


def archive_on(model: str, folder: Path, device: str) -> str:
    """Copy a CUDA archive, with all GPUs replaced by one device.

    Args:
        device: ``cpu``, or ``cuda:1``.

    Returns:
        The path of the copy, or of the archive itself if it needs no change.
    """
    kind, _, number = device.partition(":")
    index = int(number or 0)
    if gpus_of(model) <= ({index} if kind == "cuda" else set()):
        return model
    copy = folder / f"on-{kind}.pt2"
    to = {"type": kind, "index": index if kind == "cuda" else None}
    _rewrite(Path(model), copy, to, only_gpus=True)
    return str(copy)


def archive_on_cpu(model: str, folder: Path) -> str:
    """Copy a CUDA archive for the CPU; other archives are used unchanged."""
    return archive_on(model, folder, "cpu")


def save_for_cuda(exported: ExportedProgram, path: Path) -> None:
    """Save a program in CPU memory as a program for ``cuda:0``."""
    plain = path.with_name(f"{path.stem}-on-cpu.pt2")
    try:
        with tag_storages_as_cuda():
            torch.export.save(exported, plain)
        _rewrite(plain, path, {"type": "cuda", "index": 0}, only_gpus=False)
    finally:
        plain.unlink(missing_ok=True)


def _rewrite(
    source: Path, target: Path, device: dict[str, Any], *, only_gpus: bool
) -> None:
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        for entry in old.infolist():
            data = old.read(entry)
            if entry.filename.endswith(".json"):
                moved = _replace_devices(json.loads(data), device, only_gpus=only_gpus)
                data = json.dumps(moved).encode()
            new.writestr(entry.filename, data)


def _replace_devices(value: Any, device: dict[str, Any], *, only_gpus: bool) -> Any:
    """Replace each device in a tree of JSON values, or only the GPUs."""
    if isinstance(value, list):
        return [_replace_devices(item, device, only_gpus=only_gpus) for item in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == device.keys():
        return device if _is_gpu(value) or not only_gpus else value
    return {
        key: _replace_devices(item, device, only_gpus=only_gpus)
        for key, item in value.items()
    }


_tag = _place = ""
"""The device that CPU storages are saved as, and the one to load GPU storages on."""


def read_cuda_storages_on(device: str) -> None:
    """Make ``torch.load`` of this process place GPU storages on another device."""
    global _place
    _register()
    _place = device


@functools.cache
def _register() -> None:
    torch.serialization.register_package(
        _FIRST, lambda storage: _tag or None, _restore_storage
    )


def _restore_storage(storage: Any, place: str) -> Any:
    """Place a storage on the chosen device; None leaves that to torch."""
    if not (_place and place.startswith("cuda")) or place == _place:
        return None
    if _place == "cpu":
        return storage
    return torch.serialization.default_restore_location(storage, _place)


@contextlib.contextmanager
def tag_storages_as_cuda() -> Iterator[None]:
    """Make ``torch.save`` write CPU storages as storages of ``cuda:0``."""
    global _tag
    _register()
    _tag = "cuda:0"
    try:
        yield
    finally:
        _tag = ""


# Count and describe the GPUs without creating a CUDA context.
#
# A process with a context cannot fork children that use CUDA. So torch counts GPUs
# through NVML (``PYTORCH_NVML_BASED_CUDA_CHECK``, ``torch/cuda/__init__.py``), and
# nvidia-smi describes them.

VISIBLE = "CUDA_VISIBLE_DEVICES"

_PROPERTIES = {
    "GPU": "name",
    "compute capability": "compute_cap",
    "GPU memory": "memory.total",
    "driver": "driver_version",
}
_SMI_S = 20.0
_hidden_values: dict[str, str | None] = {}  # values of variables before ``hide``


def gpu_properties(index: int) -> dict[str, str]:
    """Return properties of a GPU, as far as nvidia-smi reports them.

    Args:
        index: the number N in ``cuda:N``, which counts visible GPUs only.
    """
    gpu_id = visible_name(index, os.environ.get(VISIBLE))
    query = f"--query-gpu={','.join(_PROPERTIES.values())}"
    command = ["nvidia-smi", query, "--format=csv,noheader", "-i", gpu_id]
    try:
        result = subprocess.run(
            command, capture_output=True, text=True, timeout=_SMI_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return {}
    values = [word.strip() for word in result.stdout.strip().split(",")]
    if result.returncode or len(values) != len(_PROPERTIES):
        return {}
    known = zip(_PROPERTIES, values, strict=True)
    return {name: word for name, word in known if word and not word.startswith("[")}


def visible_name(index: int, visible: str | None) -> str:
    """Return a GPU's name for nvidia-smi: its number on the machine, or its UUID.

    >>> visible_name(1, None), visible_name(1, "4,6"), visible_name(0, "GPU-12ab")
    ('1', '6', 'GPU-12ab')
    """
    names = visible.split(",") if visible else []
    return names[index].strip() if index < len(names) else str(index)


def describe_gpu(index: int, known: dict[str, str]) -> str:
    """Describe in one line the GPU that a program runs on."""
    visible = os.environ.get(VISIBLE)
    among = f", with {VISIBLE}={visible}" if visible is not None else ""
    return f"{known.get('GPU', 'a GPU')} as cuda:{index}{among}"


def describe_gpu_count() -> str:
    """Describe how many GPUs there are, and which are visible."""
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    texts = {0: "there is no CUDA device", 1: "there is one CUDA device, cuda:0"}
    many = f"there are {count} CUDA devices, cuda:0 to cuda:{count - 1}"
    description = texts.get(count, many)
    visible = os.environ.get(VISIBLE)
    return description if visible is None else f"{description} ({VISIBLE}={visible!r})"


def require(index: int, model: str) -> None:
    """Refuse a GPU that does not exist.

    Raises:
        LoadError: there are fewer GPUs; says how many.
    """
    if torch.cuda.is_available() and index < torch.cuda.device_count():
        return
    has_one = torch.cuda.is_available() and torch.cuda.device_count() > 0
    advice = "say --device cuda:0, which moves it to the first"
    if not has_one:
        advice = "say --device cuda, and its kernels are checked without a GPU"
    raise LoadError(
        model,
        f"is to run on cuda:{index}, and {describe_gpu_count()}",
        advice,
    )


def select_gpus(gpus: Sequence[str]) -> tuple[str, ...]:
    """Make only the first of some GPUs visible to this process and its forks.

    Args:
        gpus: their numbers N in ``cuda:N``.

    Returns:
        The name of each GPU, with which ``show_one_gpu`` makes a fork use it.

    Raises:
        LoadError: one of the GPUs does not exist.
    """
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    for each in gpus:
        if int(each) >= count:
            reason = f"there is no cuda:{each}: {describe_gpu_count()}"
            advice = "number N means cuda:N"
            raise LoadError(f"--gpus {','.join(gpus)}", reason, advice)
    visible = os.environ.get(VISIBLE)
    names = tuple(visible_name(int(each), visible) for each in gpus)
    show_one_gpu(names[0])
    return names


def show_one_gpu(gpu: str) -> None:
    """Make only one GPU visible to this process, which must not have a context yet."""
    os.environ[VISIBLE] = gpu


def hide() -> None:
    """Make no GPU visible to this process and its forks.

    PyTorch may initialize CUDA for a CPU program too (``preserve_rng_state`` in
    torch/_dynamo/utils.py), and a process that has done so cannot fork children that
    compile: "Cannot re-initialize CUDA in forked subprocess" (torch 2.11 on an H100).
    """
    _hidden_values.setdefault(VISIBLE, os.environ.get(VISIBLE))
    os.environ[VISIBLE] = ""


def restore_gpus() -> None:
    """Undo ``hide`` in this process, for instance before it runs a user's command."""
    for name, value in _hidden_values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
