"""From an ``ExportedProgram`` to a source archive."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import torch
from torch.export import ExportedProgram

from shrinkfx.worker.graph.rebuild import Rebuilt
from shrinkfx.worker.loading.source_archive import (
    SourceProgram,
    origins_of,
    write_source_archive,
)
from shrinkfx.worker.model import Inputs
from shrinkfx.worker.printing.module import (
    export_source,
    leave_out,
    print_program,
    weights_of,
)
from shrinkfx.worker.private_api.graph_api import pytree


def save_as_source(exported: ExportedProgram, path: Path, device: str = "") -> None:
    """Write a program that ``torch.export.save`` refuses to a source archive.

    Args:
        device: where the program is to run, if not where it is now.

    Raises:
        Exception: there is no source that torch.export accepts, or a weight or an input
            that torch.save does.
    """
    assert exported.example_inputs is not None
    example = Inputs(*exported.example_inputs)
    _require_plain_containers(exported.example_inputs)
    try:
        built, loose = _printable(exported, example)
    except Exception:  # noqa: BLE001 - some programs can be printed without in-place operators only
        with torch.no_grad():
            functional = exported.run_decompositions({})
        built, loose = _printable(functional, example)
    call = exported.module_call_graph[0].signature
    assert call is not None
    values = pytree.tree_leaves([n.meta.get("val") for n in built.exported.graph.nodes])
    found = {each.device for each in values if isinstance(each, torch.Tensor)}
    write_source_archive(
        SourceProgram(
            source=print_program(built, device, loose, leave_out),
            arguments=call.forward_arg_names or [],
            origins=origins_of(built.exported.graph_module),
            devices={torch.device(device)} if device else found,
            weights=weights_of(built.exported),
            example=example,
        ),
        path,
    )


def _require_plain_containers(example: Any) -> None:
    """Refuse containers that ``torch.load`` would not read with ``weights_only``."""
    held = io.BytesIO()
    torch.save(pytree.tree_map(lambda _: None, example), held)
    held.seek(0)
    torch.load(held, weights_only=True)


def _printable(
    exported: ExportedProgram, example: Inputs
) -> tuple[Rebuilt, frozenset[str]]:
    """Make sure that a program can be exported from its source, with its inputs flat.

    Returns:
        The program, and the sizes that are not declared by name.
    """
    flat = Inputs(tuple(example.flat()), {})
    built = Rebuilt(exported, flat, flat)
    return built, export_source(built)[1]
