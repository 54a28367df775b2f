"""Export and save objects of this process: the only use of torch outside a worker.

This process belongs to the user, and it already has torch, because the object is a
torch object. This module loads no files.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.export import ExportedProgram

from shrinkfx.errors import LoadError, StorageError, UsageError
from shrinkfx.worker.printing.archive import save_as_source


def name_program(program: object) -> str:
    """Return a name for an object, used to name the folder of its runs.

    Raises:
        UsageError: the object is not a program.
    """
    if isinstance(program, ExportedProgram):
        return "program"
    if isinstance(program, nn.Module):
        return type(program).__name__
    raise UsageError(
        f"minify() takes a path, an ExportedProgram, or an nn.Module with args=(...); "
        f"this is of type {type(program).__name__}"
    )


def export_program(
    program: object, args: tuple[Any, ...] | None, kwargs: Any, dynamic_shapes: Any
) -> ExportedProgram:
    """Export a module as it is; return an ``ExportedProgram`` unchanged.

    Raises:
        UsageError: a module without arguments, or a program with dynamic shapes.
        LoadError: torch.export rejects the module.
    """
    if isinstance(program, ExportedProgram):
        if dynamic_shapes is not None:
            raise UsageError(
                "dynamic_shapes= applies to a module; this program is already exported"
            )
        return program
    assert isinstance(program, nn.Module)
    if args is None and kwargs is None:
        raise UsageError("exporting a module needs its arguments: pass args=(...)")
    with (
        _raise_load_error(program, "torch.export refuses it", _EXPORT),
        torch.no_grad(),
    ):
        return torch.export.export(
            program, args or (), kwargs, dynamic_shapes=dynamic_shapes
        )


_EXPORT = (
    "check whether torch.export.export(module, args, kwargs, dynamic_shapes=...) "
    "succeeds with your own settings, and pass the ExportedProgram to minify()"
)
_SAVE = (
    "if an input is of a class of your own, register the class with "
    "torch.export.register_dataclass"
)
_INPUTS = "pass tensors, numbers and containers of these that torch.save accepts"


@contextmanager
def _raise_load_error(program: object, what: str, advice: str) -> Iterator[None]:
    """Raise a LoadError that names the object, with torch's own error as its cause."""
    try:
        yield
    except Exception as error:
        first = str(error).strip().partition("\n")[0]
        reason = f"{what} ({type(error).__name__}: {first})"
        raise LoadError(name_program(program), reason, advice) from error


def save_program(program: ExportedProgram, path: Path, archive: Path) -> None:
    """Save a program; weights that are shared are written once.

    Args:
        archive: the source archive to write if ``torch.export.save`` rejects the
            program.

    Raises:
        LoadError: the program cannot be saved.
        StorageError: the disk is full, for example.
    """
    try:
        with _raise_load_error(program, "torch.export.save refuses it", _SAVE):
            torch.export.save(program, path)
    except LoadError as error:
        if isinstance(error.__cause__, OSError) or _FULL.search(str(error)):
            raise StorageError(str(path), error.reason, "free some space") from error
        path.unlink(missing_ok=True)
        try:
            save_as_source(program, archive)
        except Exception as second:  # noqa: BLE001 - printing and exporting raise anything
            first = str(second).strip().partition("\n")[0]
            reason = f"{error.reason}, and it has no source code: {first}"
            raise LoadError(name_program(program), reason, _SAVE) from error


_FULL = re.compile("PytorchStreamWriter failed|file write failed|No space left")
"""Messages of PyTorch's own writer when the disk is full."""


def save_inputs(args: tuple[Any, ...] | None, kwargs: Any, path: Path) -> None:
    """Save the inputs on which a program fails.

    Raises:
        LoadError: torch.save rejects the inputs.
        StorageError: the disk is full, for example.
    """
    try:
        torch.save({"args": tuple(args or ()), "kwargs": dict(kwargs or {})}, path)
    except Exception as error:
        first = str(error).strip().partition("\n")[0]
        reason = f"they cannot be saved ({type(error).__name__}: {first})"
        if isinstance(error, OSError) or _FULL.search(str(error)):
            raise StorageError(str(path), reason, "free some space") from error
        raise LoadError("the inputs", reason, _INPUTS) from error


def remarks(program: object, exported: ExportedProgram) -> Iterator[str]:
    """Yield remarks on settings that the user may not have intended."""
    if isinstance(program, nn.Module) and program.training:
        yield (
            f"{name_program(program)} is in training mode and was exported so: dropout "
            "and batch norm behave as in training; .eval() is how it is deployed"
        )
    devices = sorted({str(t.device) for t in exported.state_dict.values()})
    if any(device.startswith("cuda") for device in devices):
        yield (
            f"weights are on {', '.join(devices)}: each process of the run loads a "
            "copy there; if memory is short, free the model here"
        )
