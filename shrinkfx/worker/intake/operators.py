"""Find where the custom operators of a program were registered in this process."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import fx
from torch.export import ExportedProgram

from shrinkfx.program.skeleton import PYTORCH_NAMESPACES
from shrinkfx.worker.private_api import graph_api, operator_api


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
