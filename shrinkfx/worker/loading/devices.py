"""Where a program belongs, and where it lies: CUDA programs without CUDA.

An archive names devices in its JSON files (graph, weights) and in what is pickled
(example inputs). Both are rewritten, so that a CUDA program can be read on a machine
that has no GPU, and a program held on the CPU is written as the CUDA program it is.
"""

from __future__ import annotations

import contextlib
import functools
import json
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

_FIRST = 5
"""Before the priorities (10 to 30) of the devices that torch knows itself."""


def device_type(model: str) -> str:
    """Read off the archive whether a program is on CUDA, without loading it."""
    try:
        with zipfile.ZipFile(model) as archive:
            for name in archive.namelist():
                if name.endswith(".json") and b'"type": "cuda"' in archive.read(name):
                    return "cuda"
    except (OSError, zipfile.BadZipFile, RuntimeError, ValueError, zlib.error):
        return "cpu"  # loading it will say what is wrong
    return "cpu"


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
    subject = setup.model or "--backend interpreter"
    if not is_for_cuda(setup):
        if asked is Backend.INTERPRETER and setup.device:
            reason = "the interpreter runs CUDA kernels, and --device says cpu"
            raise LoadError(subject, reason, "leave --device out, or say cuda")
        return Backend.AOTI if asked is Backend.AUTO else asked
    if asked is Backend.INTERPRETER or torch.cuda.is_available():
        return Backend.AOTI if asked is Backend.AUTO else asked
    if asked is Backend.AUTO:
        return Backend.INTERPRETER
    reason = "is to run on CUDA, and there is no CUDA device"
    advice = "leave --backend out: its kernels can be checked without a GPU"
    raise LoadError(subject, reason, advice)


def archive_on_cpu(model: str, folder: Path) -> str:
    """Copy a CUDA archive with all devices rewritten; others are taken as they are."""
    if device_type(model) == "cpu":
        return model
    copy = folder / "on-cpu.pt2"
    _rewrite(Path(model), copy, {"type": "cpu", "index": None})
    return str(copy)


def save_for_cuda(exported: ExportedProgram, path: Path) -> None:
    """Save a program that lies on the CPU as one for ``cuda:0``."""
    plain = path.with_name(f"{path.stem}-on-cpu.pt2")
    with _tagged_as_cuda():
        torch.export.save(exported, plain)
    _rewrite(plain, path, {"type": "cuda", "index": 0})
    plain.unlink()


def _rewrite(source: Path, target: Path, device: dict[str, Any]) -> None:
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        for entry in old.infolist():
            data = old.read(entry)
            if entry.filename.endswith(".json"):
                data = json.dumps(_on(json.loads(data), device)).encode()
            new.writestr(entry.filename, data)


def _on(value: Any, device: dict[str, Any]) -> Any:
    """Replace each device in a tree of JSON values."""
    if isinstance(value, list):
        return [_on(item, device) for item in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == device.keys():
        return device
    return {key: _on(item, device) for key, item in value.items()}


_tag = ""


@functools.cache
def read_cuda_storages_on_cpu() -> None:
    """Let ``torch.load`` in this process put what was saved on CUDA into memory."""
    torch.serialization.register_package(
        _FIRST,
        lambda storage: _tag or None,
        lambda storage, place: storage if place.startswith("cuda") else None,
    )


@contextlib.contextmanager
def _tagged_as_cuda() -> Iterator[None]:
    global _tag
    read_cuda_storages_on_cpu()
    _tag = "cuda:0"
    try:
        yield
    finally:
        _tag = ""
