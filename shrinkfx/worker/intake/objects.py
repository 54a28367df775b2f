"""Export and save objects of this process: the only use of torch outside a worker.

This process belongs to the user, and it already has torch, because the object is a
torch object. This module loads no files.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import fx, nn
from torch.export import ExportedProgram

from shrinkfx.errors import LoadError, StorageError, UsageError
from shrinkfx.program.skeleton import PYTORCH_NAMESPACES
from shrinkfx.worker.printing.module import save_as_source
from shrinkfx.worker.private_api import graph_api, operator_api

from .watching.by_import import ImportDescription, describe_import
from .watching.origins import Origin, find_origins_in_inductor
from .watching.programs import Settings, is_plain, is_same


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


# Find where the custom operators of a program were registered in this process.


@dataclass(frozen=True)
class Registration:
    """The place where an operator was registered.

    Attributes:
        operator: its name, ``mylib::mix``.
        module: the module's name in this process, ``__main__`` for code that was typed
            interactively; '' if unknown.
        file: the file of that module, or the file that registered the operator; '' if
            unknown.
    """

    operator: str
    module: str = ""
    file: str = ""


def find_registrations(program: ExportedProgram) -> list[Registration]:
    """Return where each operator that is not PyTorch's own was registered."""
    names = {
        node.target._schema.name
        for module in program.graph_module.modules()
        if isinstance(module, fx.GraphModule)
        for node in module.graph.nodes
        if isinstance(node.target, graph_api.OpOverload)
        and node.target.namespace not in PYTORCH_NAMESPACES
    }
    return [_registration(name) for name in sorted(names)]


def libraries() -> list[str]:
    """List the libraries that were loaded with ``torch.ops.load_library``."""
    return sorted(str(path) for path in torch.ops.loaded_libraries)


def _registration(name: str) -> Registration:
    for module, file in _iter_places(name):
        if module and not file:
            file = getattr(sys.modules.get(module), "__file__", None) or ""
        if file and not module:
            module = _module_of(file)
        if module or file:
            return Registration(name, module, file)
    return Registration(name)


def _iter_places(name: str) -> Iterator[tuple[str, str]]:
    """Yield (module, file) pairs from PyTorch's records of a registration.

    One of the two strings is empty in each pair.
    """
    if operator_api.FEATURE.missing:
        return
    with_decorator = _of_decorator(name)
    if with_decorator:
        yield with_decorator, ""
    dump = operator_api.dispatch_dump(name)
    files = re.findall(r"registered at (.+?):\d+", dump)
    for file in [_of_fake(name), *files]:
        if file and not _is_torchs(file):
            yield "", file


def _of_decorator(name: str) -> str:
    """Return the module of the function that ``torch.library.custom_op`` decorated."""
    definition = operator_api.custom_ops.OPDEFS.get(name)
    return str(getattr(getattr(definition, "_init_fn", None), "__module__", "") or "")


def _of_fake(name: str) -> str:
    """Return the file in which the fake kernel of an operator was registered."""
    entry = operator_api.simple_registry.singleton.find(name)
    kernel = getattr(getattr(entry, "fake_impl", None), "kernel", None)
    return str(getattr(kernel, "source", "")).rpartition(":")[0]


def _is_torchs(file: str) -> bool:
    return Path(torch.__file__).parent in Path(file).parents


def _module_of(file: str) -> str:
    """Return the module with a file; ``__main__`` for code typed interactively."""
    real = os.path.realpath(file)
    for name, module in [*sys.modules.items()]:
        source = getattr(module, "__file__", None)
        if source and name != "__mp_main__" and os.path.realpath(source) == real:
            return name
    interactive = file.startswith("<") or "ipykernel" in file
    return "__main__" if interactive else ""


# The state of Inductor in this process that a new process would not have.


@dataclass(frozen=True)
class InductorState:
    """Settings and code that were put into Inductor since its import.

    Attributes:
        settings: simple values that differ from the default, by setting name.
        others: the changed settings that are not simple values, and how an import makes
            each value.
        origins: modules whose code is in Inductor's tables or in ``others``.
    """

    settings: Settings = field(default_factory=dict)
    others: Mapping[str, ImportDescription] = field(default_factory=dict)
    origins: tuple[Origin, ...] = ()


def read_inductor_state() -> InductorState:
    """Read the current state of Inductor; return an empty one if it is not imported."""
    config = sys.modules.get("torch._inductor.config")
    if config is None or not hasattr(config, "_is_default"):
        return InductorState()
    config_now = config.get_config_copy()
    changed = {k: v for k, v in config_now.items() if _is_other(config, k, v)}
    plain = {k: v for k, v in changed.items() if is_plain(v)}
    others = {k: v for k, v in changed.items() if k not in plain}
    made = {k: describe_import(v) for k, v in others.items()}
    return InductorState(plain, made, tuple(find_origins_in_inductor(others.values())))


def _is_other(config: ModuleType, name: str, value: object) -> bool:
    """Return whether a setting differs from its default.

    A setting that was changed and set back to the default counts as unchanged.
    """
    if config._is_default(name):
        return False
    entry = getattr(config, "_config", {}).get(name)
    return entry is None or not is_same(value, entry.default)
