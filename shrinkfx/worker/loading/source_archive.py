"""A program as source code and tensors, in one file.

``torch.export.save`` has no form for some arguments, such as the nested tuples of
``flex_attention`` or the Python numbers that a ``while_loop`` carries (torch 2.15). A
source archive holds any program that can be printed:

    source.json    the source code
    call.json      the names of the arguments, and the lines that operators come from
    devices.json   the devices that the program uses
    tensors.pt     weights and example inputs, as torch.save writes them

Reading a source archive executes its code.
"""

from __future__ import annotations

import json
import math
import operator
import re
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram

from shrinkfx.errors import LoadError
from shrinkfx.protocol.source import SOURCE, Source
from shrinkfx.wording import Flag, MessageText
from shrinkfx.worker.loading.archive import restrict_unpickling, why_unreadable
from shrinkfx.worker.model import Inputs
from shrinkfx.worker.origin import graphs_of, operator_nodes, origin_of, set_origin
from shrinkfx.worker.private_api.graph_api import pytree

_CALL, _DEVICES, _TENSORS = "call.json", "devices.json", "tensors.pt"
_GPU = re.compile(r"torch\.device\(\"cuda(:\d+)?\"\)")
"""A GPU as ``GraphPrinter`` writes it."""


@dataclass(frozen=True)
class SourceProgram:
    """The content of a source archive.

    Attributes:
        source: the code, without the values of weights and inputs.
        arguments: the names of the program's arguments, which ``source`` takes flat.
        origins: by graph name, the operators and the lines that they come from.
        devices: the devices that the program uses.
        weights: the values of the attributes in ``source``.
        example: the example inputs, in the structure of the arguments.
    """

    source: Source
    arguments: list[str]
    origins: dict[str, list[tuple[str, str]]]
    devices: set[torch.device]
    weights: dict[str, Any]
    example: Inputs


def origins_of(module: fx.GraphModule) -> dict[str, list[tuple[str, str]]]:
    """Return the operators of each graph, and the lines that they come from."""
    return {
        name: [(str(node.target), origin_of(node)) for node in operator_nodes(graph)]
        for name, graph in graphs_of(module).items()
    }


def write_source_archive(program: SourceProgram, path: Path) -> None:
    """Write a program to a file; the bytes depend only on the program."""
    devices = [{"type": each.type, "index": each.index} for each in program.devices]
    call = {"arguments": program.arguments, "origins": program.origins}
    texts = {
        SOURCE: program.source.to_line(),
        _CALL: json.dumps(call),
        _DEVICES: json.dumps(sorted(devices, key=str)),
    }
    example = {"args": program.example.args, "kwargs": program.example.kwargs}
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in texts.items():
            archive.writestr(zipfile.ZipInfo(name), text)
        with archive.open(zipfile.ZipInfo(_TENSORS), "w", force_zip64=True) as file:
            torch.save({"weights": program.weights, **example}, file)


def calls_triton_kernels(program: ExportedProgram) -> bool:
    """Return whether a program calls Triton kernels by their index in the process.

    No file holds these kernels.
    """
    return any(
        getattr(node.target, "__name__", "").startswith("triton_kernel_wrapper")
        for graph in graphs_of(program.graph_module).values()
        for node in graph.nodes
    )


def read_source_archive(path: str, model: str) -> ExportedProgram:
    """Export the program in the file at ``path``, whose name in messages is ``model``.

    Raises:
        LoadError: the file cannot be read, or its program cannot be exported.
    """
    try:
        return _read(path)
    except Exception as error:
        raise LoadError(model, why_unreadable(error), _ADVICE) from error


_ADVICE = MessageText(
    "capture the script again, or call minify() again, with this torch; ",
    Flag("--preload"),
    " the modules that register its operators or the classes of its inputs",
)


def _read(path: str) -> ExportedProgram:
    with zipfile.ZipFile(path) as archive, restrict_unpickling():
        source = Source.from_line(archive.read(SOURCE))
        call = json.loads(archive.read(_CALL))
        devices = json.loads(archive.read(_DEVICES))
        with archive.open(_TENSORS) as file:
            data = torch.load(file, weights_only=True)
    module, shapes = execute_source(source, _device(devices))
    for weight in source.weights:
        value = data["weights"][weight.attribute]
        set_weight(module, weight.attribute, weight.kind, value)
    example = data["args"], data["kwargs"]
    flat = tuple(pytree.tree_leaves(example))
    with torch.no_grad():
        exported = torch.export.export(module.eval(), flat, dynamic_shapes=shapes)
    for name, graph in graphs_of(exported.graph_module).items():
        _set_origins(graph, call["origins"].get(name, []))
    signature = exported.module_call_graph[0].signature
    assert signature is not None
    signature.in_spec = pytree.tree_structure(example)
    signature.forward_arg_names = call["arguments"]
    exported.example_inputs = example
    return exported


def _device(devices: list[dict[str, Any]]) -> str:
    """Return the GPU that a program is for, or ``cpu`` if there is none."""
    gpus = [each["index"] or 0 for each in devices if each["type"] == "cuda"]
    return f"cuda:{gpus[0]}" if gpus else "cpu"


def _set_origins(graph: fx.Graph, origins: list[tuple[str, str]]) -> None:
    """Copy origins to the operators, up to the first operator that differs."""
    for node in graph.nodes:
        set_origin(node, "")  # its origin is the code in the archive
    for node, (target, origin) in zip(operator_nodes(graph), origins, strict=False):
        if str(node.target) != target:
            return
        set_origin(node, origin)


def execute_source(source: Source, gpu: str = "") -> tuple[torch.nn.Module, Any]:
    """Execute source code.

    Args:
        gpu: the device that replaces each GPU in the code, or '' for no change.

    Returns:
        The module without its weights, and the dynamic shapes of the inputs.
    """
    scope: dict[str, Any] = {"torch": torch, "operator": operator, "math": math}
    names = ", ".join(["self", *(i.name for i in source.inputs)])
    body = "\n        ".join(source.body)
    text = "\n\n".join(
        [
            *source.branches,
            f"class Repro(torch.nn.Module):\n    def forward({names}):\n        {body}",
            "\n".join(source.dims),
            f"dynamic_shapes = {source.dynamic_shapes}",
        ]
    )
    exec(_GPU.sub(f'torch.device("{gpu}")', text) if gpu else text, scope)
    module = scope["Repro"]()
    for attribute, kind in source.members.items():
        setattr(module, attribute, scope[kind]())
    return module, scope["dynamic_shapes"]


def set_weight(module: torch.nn.Module, name: str, kind: str, value: Any) -> None:
    """Add a weight to a module, as the kind that ``Weight`` names."""
    match kind:
        case "parameter":
            module.register_parameter(name, torch.nn.Parameter(value, False))
        case "buffer" | "non_persistent_buffer":
            module.register_buffer(name, value, persistent=kind == "buffer")
        case _:
            setattr(module, name, value)
