"""Export and save objects of this process: the only use of torch outside a worker.

This process belongs to the user, and it already has torch, because the object is a
torch object. This module loads no files.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import FunctionType
from typing import Any

import torch
from torch import nn
from torch.export import ExportedProgram

from shrinkfx.errors import LoadError, StorageError, UsageError
from shrinkfx.protocol.captured import MAIN, CapturedProgram, Origin
from shrinkfx.worker.printing.module import save_as_source
from shrinkfx.worker.private_api import operator_api

from .watching.entry_points import watch_loaded
from .watching.origins import (
    Entry,
    Origins,
    find_custom_operators,
    find_entries,
    find_libraries,
    find_origins_in_inductor,
    is_local,
)
from .watching.programs import (
    count_operators,
    describe_entries,
    read_changed_settings,
    split_settings,
)


def name_program(program: object) -> str:
    """Return a name for an object, used to name the folder of its runs.

    Raises:
        UsageError: the object is not a program.
    """
    if isinstance(program, ExportedProgram):
        return "program"
    if isinstance(program, nn.Module):
        return type(program).__name__
    if isinstance(program, FunctionType):
        return program.__name__.strip("<>")
    raise UsageError(
        "minify() takes a path, an ExportedProgram, or an nn.Module or a function with "
        f"args=(...); this is of type {type(program).__name__}"
    )


def export_program(
    program: object, args: tuple[Any, ...] | None, kwargs: Any, dynamic_shapes: Any
) -> ExportedProgram:
    """Export a module or a function; return an ``ExportedProgram`` unchanged.

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
    module = program if isinstance(program, nn.Module) else nn.Module()
    if module is not program:
        module.forward = program  # type: ignore[assignment]
    if args is None and kwargs is None:
        raise UsageError("exporting a module needs its arguments: pass args=(...)")
    with (
        _raise_load_error(program, "torch.export refuses it", _EXPORT),
        torch.no_grad(),
    ):
        return torch.export.export(
            module, args or (), kwargs, dynamic_shapes=dynamic_shapes
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


# Describe what another process needs to run and compile a program as this one does.


def describe_session(
    program: ExportedProgram, registered: Sequence[Origin]
) -> CapturedProgram:
    """Describe the settings of Inductor, and the modules that a program needs.

    Args:
        registered: where its custom operators were registered.
    """
    settings, entries = read_changed_settings(), [*find_entries()]
    inductor, others = split_settings(settings)
    values = (settings[name] for name in others)
    in_inductor = find_origins_in_inductor(values, entries)
    return CapturedProgram(
        inductor=inductor,
        others={**others, **describe_entries(entries)},
        operators=count_operators(program),
        origins=(*registered, *in_inductor),
    )


def find_registrations(program: ExportedProgram) -> list[Origin]:
    """Return where the operators that are not PyTorch's own were registered.

    The reason of each origin is a list of operators. An origin without a module, file
    and library stands for operators of which this is not known.
    """
    names: dict[tuple[str, str], list[str]] = {}
    for name in sorted(find_custom_operators(program)):
        names.setdefault(_find_module(name), []).append(name)
    native = names.pop(("", ""), [])
    origins = [
        Origin(module, file, "", not file or is_local(file), ", ".join(those))
        for (module, file), those in names.items()
    ]
    libraries = [*find_libraries(native)]
    if native and not libraries:
        origins.append(Origin("", "", "", is_local=False, why=", ".join(native)))
    return origins + libraries


class _SessionOrigins(Origins):
    """Finds registrations in PyTorch's records, because nothing has watched them."""

    def list_origins(
        self, exported: Any, settings: Iterable[object], entries: Iterable[Entry]
    ) -> list[Origin]:
        others = super().list_origins(exported, settings, entries)
        return [*find_registrations(exported), *others]


@contextmanager
def watch_session(folder: Path) -> Iterator[None]:
    """Record what this process passes to Inductor during the block, in a folder.

    Dynamo forgets what it has compiled, because a function that was compiled before the
    block, and its failure, would otherwise not be seen.
    """
    torch.compiler.reset()
    config = import_module("torch._functorch.config")
    with (
        # A graph in this cache does not reach Inductor.
        config.patch(enable_autograd_cache=False),
        watch_loaded(str(folder), _SessionOrigins()),
    ):
        yield


def _find_module(operator: str) -> tuple[str, str]:
    """Return the module and the Python file that registered an operator, or ''.

    The module is ``__main__`` for code that was typed interactively.
    """
    for module, file in _iter_places(operator):
        if module and not file:
            file = getattr(sys.modules.get(module), "__file__", None) or ""
        module = module or _module_of(file)
        if module or file.endswith(".py"):
            return module, file
    return "", ""


def _iter_places(name: str) -> Iterator[tuple[str, str]]:
    """Yield (module, file) pairs from PyTorch's records of a registration.

    One of the two strings is empty in each pair.
    """
    if operator_api.FEATURE.missing:
        return
    # The function that torch.library.custom_op decorated.
    definition = operator_api.custom_ops.OPDEFS.get(name)
    function = getattr(definition, "_init_fn", None)
    if module := getattr(function, "__module__", None):
        yield str(module), ""
    entry = operator_api.simple_registry.singleton.find(name)
    kernel = getattr(getattr(entry, "fake_impl", None), "kernel", None)
    fake = str(getattr(kernel, "source", "")).rpartition(":")[0]
    dump = operator_api.dispatch_dump(name)
    for file in [fake, *re.findall(r"registered at (.+?):\d+", dump)]:
        if file and Path(torch.__file__).parent not in Path(file).parents:
            yield "", file


def _module_of(file: str) -> str:
    """Return the module with a file; ``__main__`` for code typed interactively."""
    real = os.path.realpath(file)
    for name, module in [*sys.modules.items()]:
        source = getattr(module, "__file__", None)
        if source and name != "__mp_main__" and os.path.realpath(source) == real:
            return name
    interactive = file.startswith("<") or "ipykernel" in file
    return MAIN if interactive else ""
