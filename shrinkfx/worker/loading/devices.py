"""Where a program belongs, and where it lies: CUDA programs without CUDA.

An archive names devices in its JSON files (graph, weights) and in what is pickled
(example inputs). Both are rewritten, so that a CUDA program can be read on a machine
that has no GPU, and a program held on the CPU is written as the CUDA program it is.
"""

from __future__ import annotations

import contextlib
import functools
import json
import re
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch.export import ExportedProgram

from shrinkfx.errors import LoadError
from shrinkfx.protocol.choices import Backend
from shrinkfx.protocol.requests import Setup
from shrinkfx.wording import Flag, Said, Words
from shrinkfx.worker.loading import gpus
from shrinkfx.worker.private_api.graph_api import pytree

_FIRST = 5
"""Before the priorities (10 to 30) of the devices that torch knows itself."""


def gpus_of(model: str) -> set[int]:
    """Read off the archive on which GPUs a program lies, without loading it.

    Returns:
        Their numbers; nothing for one on the CPU, or where loading it will say what is
        wrong.
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
"""As ``torch/_export/serde/schema.py`` has its ``Device`` written; no number, or null,
is the first."""


def _is_gpu(value: Any) -> bool:
    is_device = isinstance(value, dict) and value.keys() == {"type", "index"}
    return is_device and value["type"] == "cuda"


def device_type(model: str) -> str:
    """Read off the archive whether a program is on CUDA, without loading it."""
    return "cuda" if gpus_of(model) else "cpu"


def gpu_of(exported: ExportedProgram) -> int:
    """Find the number of the GPU where a program lies, as ``device_index`` takes it.

    Returns:
        -1 for the first, where a package lies that is loaded without, or for none.
    """
    values: list[Any] = [*exported.state_dict.values(), *exported.constants.values()]
    values += [node.meta.get("val") for node in exported.graph.nodes]
    for value in pytree.tree_leaves(values):
        if isinstance(value, torch.Tensor) and value.device.type == "cuda":
            return value.device.index or -1
    return -1


def is_for_cuda(setup: Setup) -> bool:
    """Tell whether a program is for CUDA, by ``--device`` or by itself."""
    if setup.device:
        return setup.device.startswith("cuda")
    if setup.model is None:
        return False
    return setup.backend == Backend.INTERPRETER or device_type(setup.model) == "cuda"


def is_on_gpu(setup: Setup) -> bool:
    """Tell whether a program is to run on a GPU, once the back end is chosen."""
    return is_for_cuda(setup) and setup.backend != Backend.INTERPRETER


def choose_backend(setup: Setup) -> Backend:
    """Choose what compiles: AOTInductor, or its CUDA kernels on the interpreter.

    Raises:
        LoadError: ``--backend`` needs what is not there.
    """
    asked = Backend(setup.backend)
    subject = Words(setup.model or _NO_MODEL[asked is Backend.INTERPRETER])
    if not is_for_cuda(setup):
        moves = Words(Flag("--device", "cuda"), " moves it")
        _refuse_gpus(setup, subject, "it is for the CPU", moves)
        if asked is Backend.INTERPRETER and setup.device:
            reason = (
                "the interpreter runs CUDA kernels, and this program is for the CPU"
            )
            advice = Words("leave ", Flag("--device"), " out, or say cuda")
            raise LoadError(subject, reason, advice)
        return Backend.AOTI if asked is Backend.AUTO else asked
    index = wanted_gpu(setup)
    if asked is Backend.INTERPRETER:
        _refuse_gpus(setup, subject, "the interpreter uses no GPU", "leave one out")
        if setup.device and index:
            reason = f"is for {setup.device}, and the interpreter uses no GPU"
            raise LoadError(subject, reason, Words("say ", Flag("--device", "cuda")))
        return asked
    if asked is Backend.AUTO and not torch.cuda.is_available():
        _refuse_gpus(setup, subject, gpus.how_many(), "leave it out")
        if setup.device and index and setup.model:
            gpus.require(index, subject)
        return Backend.INTERPRETER
    if not torch.cuda.is_available():
        reason = f"needs CUDA, and {gpus.how_many()}"
        without = " out: its kernels can be checked without a GPU"
        advice = Words("leave ", Flag("--backend"), without)
        raise LoadError(subject, reason, advice)
    gpus.require(index, subject)
    return Backend.AOTI


_NO_MODEL = Words("the script"), Words(Flag("--backend", "interpreter"))
"""What is to run where there is no program."""


def wanted_gpu(setup: Setup) -> int:
    """Find the number of the GPU that a CUDA program is to run on.

    Raises:
        LoadError: it lies on several.
    """
    if setup.device:
        return int(setup.device.partition(":")[2] or 0)
    found = sorted(gpus_of(setup.model)) if setup.model else []
    if len(found) > 1:
        where = " and ".join(f"cuda:{index}" for index in found)
        reason = f"is on {where}, and a package runs on one GPU"
        there = " moves all of it there; check whether it still fails"
        advice = Words(Flag("--device", "cuda:0"), there)
        raise LoadError(str(setup.model), reason, advice)
    return found[0] if found else 0


def _refuse_gpus(setup: Setup, subject: Said, reason: str, advice: Said) -> None:
    """Refuse ``--gpus`` where no GPU is asked; scripts may be for any device.

    Raises:
        LoadError: it is given.
    """
    if setup.gpus and setup.model:
        said = f"is to be on GPUs {','.join(setup.gpus)}: {reason}"
        raise LoadError(subject, said, advice)


def archive_on(model: str, folder: Path, device: str) -> str:
    """Copy a CUDA archive with what lies on GPUs put on one, or on the CPU.

    Args:
        device: ``cpu``, or ``cuda:1``.

    Returns:
        Its path; that of the archive itself where it is there already.
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
    """Copy a CUDA archive with all devices rewritten; others are taken as they are."""
    return archive_on(model, folder, "cpu")


def save_for_cuda(exported: ExportedProgram, path: Path) -> None:
    """Save a program that lies on the CPU as one for ``cuda:0``."""
    plain = path.with_name(f"{path.stem}-on-cpu.pt2")
    try:
        with tagged_as_cuda():
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
                moved = _on(json.loads(data), device, only_gpus=only_gpus)
                data = json.dumps(moved).encode()
            new.writestr(entry.filename, data)


def _on(value: Any, device: dict[str, Any], *, only_gpus: bool) -> Any:
    """Replace each device in a tree of JSON values, or each that is a GPU."""
    if isinstance(value, list):
        return [_on(item, device, only_gpus=only_gpus) for item in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == device.keys():
        return device if _is_gpu(value) or not only_gpus else value
    return {key: _on(item, device, only_gpus=only_gpus) for key, item in value.items()}


_tag = _place = ""
"""What storages on the CPU are saved as, and where those of any GPU are put."""


def read_cuda_storages_on(device: str) -> None:
    """Have ``torch.load`` in this process put what was saved on a GPU elsewhere."""
    global _place
    _register()
    _place = device


@functools.cache
def _register() -> None:
    torch.serialization.register_package(_FIRST, lambda storage: _tag or None, _put)


def _put(storage: Any, place: str) -> Any:
    """Put a storage where it belongs; None leaves that to torch."""
    if not (_place and place.startswith("cuda")) or place == _place:
        return None
    if _place == "cpu":
        return storage
    return torch.serialization.default_restore_location(storage, _place)


@contextlib.contextmanager
def tagged_as_cuda() -> Iterator[None]:
    """Have ``torch.save`` write what is on the CPU as what is on ``cuda:0``."""
    global _tag
    _register()
    _tag = "cuda:0"
    try:
        yield
    finally:
        _tag = ""
