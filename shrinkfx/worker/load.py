"""From files to a program: preloads, the ``.pt2``, the failing inputs."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import re
import sys
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import OutputKind
from torch.utils import _pytree as pytree

from shrinkfx.errors import LoadError
from shrinkfx.program.messages import Backend, Setup
from shrinkfx.worker.devices import on_cpu, read_cuda_storages_on_cpu
from shrinkfx.worker.functional import without_writes

MUTATIONS = frozenset({OutputKind.BUFFER_MUTATION, OutputKind.USER_INPUT_MUTATION})
"""Kinds of outputs that are written back instead of returned; they come first."""


@dataclass(frozen=True)
class Inputs:
    """Arguments of one call, in the program's own structure."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


@dataclass(frozen=True)
class Program:
    """What is reduced.

    Attributes:
        original: as the file holds it.
        graph: what candidates are cut from: without in-place operators, unless
            the failure needs those.
        example: the inputs it was exported with.
        failing: the inputs it fails on; ``example`` itself where none are given.
        passing: near inputs on which it passes and must go on to, or None.
    """

    original: ExportedProgram
    graph: ExportedProgram
    example: Inputs
    failing: Inputs
    passing: Inputs | None = None

    def as_exported(self) -> Program:
        """Cut from the original itself, in-place operators and all."""
        return replace(self, graph=self.original)


def preload(names: Sequence[str]) -> dict[str, str]:
    """Import the modules and libraries that register custom operators.

    Returns:
        The Python file behind each name; '' for installed modules and libraries.

    Raises:
        LoadError: a preload is missing or fails.
    """
    files = {}
    for name in names:
        try:
            files[name] = _preload(name)
        except FileNotFoundError as error:
            raise LoadError(
                name, str(error), "check the path given to --preload"
            ) from None
        except BaseException as error:
            reason = f"the preload raised {type(error).__name__}: {error}"
            raise LoadError(
                name, reason, f"try: python -c 'import {_stem(name)}'"
            ) from error
    return files


def _preload(name: str) -> str:
    if name.endswith((".py", ".so")) and not Path(name).is_file():
        raise FileNotFoundError("no such file")
    if name.endswith(".so"):
        torch.ops.load_library(name)
        return ""
    if name.endswith(".py"):
        return str(import_file(name).__file__)
    module = importlib.import_module(name)
    path = getattr(module, "__file__", None) or ""
    installed = "site-packages" in path or "dist-packages" in path
    return "" if installed or not path.endswith(".py") else path


def import_file(name: str) -> ModuleType:
    """Import a file under its own name, with its folder importable."""
    path = Path(name).resolve()
    sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def _stem(name: str) -> str:
    return Path(name).stem if name.endswith((".py", ".so")) else name


def load(setup: Setup) -> Program:
    """Load the program and bring it into the form that candidates are cut from.

    Raises:
        LoadError: with the file at fault and what to try.
    """
    assert setup.model is not None
    _require_known_options(setup.inductor)
    original = _read(setup.model, setup)
    functional = without_writes(original)
    if functional is None:
        # The attempt may have fixed sizes in what both share.
        original = functional = _read(setup.model, setup)
    if original.example_inputs is None:
        raise LoadError(
            setup.model,
            "holds no example inputs",
            "export it again with torch.export.export(module, args) and save that",
        )
    example = Inputs(
        tuple(original.example_inputs[0]), dict(original.example_inputs[1])
    )
    if not setup.inputs or setup.inputs.endswith(".py"):
        return Program(original, functional, example, example)
    failing, passing = _read_inputs(setup.inputs)
    return Program(
        original,
        functional,
        example,
        _fitted(setup, example, failing),
        _fitted(setup, example, passing) if passing else None,
    )


def _fitted(setup: Setup, example: Inputs, given: Inputs) -> Inputs:
    """Bring given inputs to the program's device, and in its order."""
    if setup.device and setup.backend != Backend.INTERPRETER:
        args, kwargs = pytree.tree_map_only(
            torch.Tensor, lambda t: t.to(setup.device), (given.args, given.kwargs)
        )
        given = Inputs(args, kwargs)
    if set(given.kwargs) == set(example.kwargs):
        in_order = {name: given.kwargs[name] for name in example.kwargs}
        given = replace(given, kwargs=in_order)
    _require_same_structure(str(setup.inputs), example, given)
    return given


def _read(model: str, setup: Setup) -> ExportedProgram:
    folder = Path(setup.directory)
    if setup.backend != Backend.INTERPRETER:
        original = _read_program(model, model, folder / "server.log")
        return _move(original, setup.device) if setup.device else original
    # All lies on the CPU; only what is compiled is for CUDA.
    read_cuda_storages_on_cpu()
    return _read_program(on_cpu(model, folder), model, folder / "server.log")


def _require_known_options(options: Mapping[str, Any]) -> None:
    from torch._inductor import config

    known = config.get_config_copy()
    for name in options:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=3)
            raise LoadError(
                f"--inductor-config {name}",
                "torch._inductor.config has no such option",
                f"did you mean {', '.join(near)}?" if near else "",
            )


def _read_program(path: str, model: str, log: Path) -> ExportedProgram:
    """Load the file at ``path``, which the user knows as ``model``."""
    try:
        return torch.export.load(path)
    except FileNotFoundError:
        raise LoadError(model, "no such file", "give the path of a .pt2") from None
    except BaseException as error:
        text = str(error).strip().partition("\n")[0]
        reason = f"cannot be loaded: {type(error).__name__}: {text}"
        # torch logs what is wrong and raises something general.
        said = log.read_text(errors="replace") if log.exists() else ""
        if found := _UNRESOLVED.search(f"{error}\n{said}"):
            reason = f"the operator {found[1]} is not registered"
            advice = "--preload the module, .py or .so that registers it"
            raise LoadError(model, reason, advice) from error
        raise LoadError(model, reason, _advice(model)) from error


_UNRESOLVED = re.compile(r"failed to resolve torch\.ops\.([\w.]+) to an operator")


def _advice(model: str) -> str:
    if not zipfile.is_zipfile(model):
        return "expected what torch.export.save writes, a .pt2 archive"
    with zipfile.ZipFile(model) as archive:
        names = archive.namelist()
    if any("aotinductor" in name for name in names):
        return "this is a compiled package: give the program it was made from"
    if not any("/models/" in name for name in names):
        return "it holds no exported program: save one with torch.export.save"
    return "save it again with torch.export.save, with the torch that runs shrinkfx"


def _move(program: ExportedProgram, device: str) -> ExportedProgram:
    from torch.export.passes import move_to_device_pass

    return move_to_device_pass(program, device)


def _read_inputs(path: str) -> tuple[Inputs, Inputs | None]:
    """Read the failing inputs, and near ones that pass where the file has them."""
    try:
        data = torch.load(path, weights_only=True)
    except FileNotFoundError:
        raise LoadError(path, "no such file", _ADVICE) from None
    except BaseException as error:
        text = str(error).strip().partition("\n")[0]
        raise LoadError(path, f"cannot be read: {text}", _ADVICE) from error
    passing = data.pop("passing", None) if isinstance(data, dict) else None
    return as_inputs(path, data), as_inputs(path, passing) if passing else None


_ADVICE = "torch.save((arg, ...), file), or a dict with 'args' and 'kwargs'"


def as_inputs(path: str, data: object) -> Inputs:
    """Take what a file holds or gives for the arguments of a call.

    Raises:
        LoadError: it is something else.
    """
    if isinstance(data, dict) and set(data) <= {"args", "kwargs"}:
        return Inputs(tuple(data.get("args", ())), dict(data.get("kwargs", {})))
    if isinstance(data, (tuple, list)):
        return Inputs(tuple(data), {})
    raise LoadError(path, f"holds a {type(data).__name__}", _ADVICE)


def _require_same_structure(subject: str, example: Inputs, failing: Inputs) -> None:
    expected, spec = pytree.tree_flatten((example.args, example.kwargs))
    given, given_spec = pytree.tree_flatten((failing.args, failing.kwargs))
    if spec != given_spec:
        raise LoadError(
            subject,
            f"the inputs are nested as {given_spec}",
            f"the program expects {spec}",
        )
    for position, (a, b) in enumerate(zip(expected, given, strict=True)):
        if isinstance(a, torch.Tensor) and (
            not isinstance(b, torch.Tensor) or _type_of(a) != _type_of(b)
        ):
            raise LoadError(
                subject,
                f"input {position} is {_describe(b)}",
                f"the program expects {_describe(a)}",
            )


def _type_of(tensor: torch.Tensor) -> tuple[torch.dtype, int, str]:
    return tensor.dtype, tensor.dim(), tensor.device.type


def _describe(value: object) -> str:
    if isinstance(value, torch.Tensor):
        return f"{value.dtype} of shape {tuple(value.shape)} on {value.device.type}"
    return type(value).__name__
