"""Source archives of exported programs."""

from __future__ import annotations

from pathlib import Path

import torch
from torch.export import ExportedProgram

from shrinkfx.worker.graph.rebuild import RebuiltCandidate
from shrinkfx.worker.loading.archive import (
    SourceProgram,
    calls_triton_kernels,
    origins_of,
    write_source_archive,
)
from shrinkfx.worker.loading.load import functionalise
from shrinkfx.worker.model import Inputs
from shrinkfx.worker.printing.graph import Unprintable
from shrinkfx.worker.printing.module import (
    export_source,
    print_nothing,
    print_program,
    weights_of,
)
from shrinkfx.worker.private_api.graph_api import pytree


def save_as_source(exported: ExportedProgram, path: Path, device: str = "") -> None:
    """Write a program that ``torch.export.save`` refuses to a source archive.

    Args:
        device: the target device, if it differs from the current one.

    Raises:
        Unprintable: a part of the program has no source form, or cannot be saved.
        Exception: torch.export refuses the source code, or torch.save an input.
    """
    if exported.example_inputs is None:
        raise Unprintable("the program has no example inputs")
    if calls_triton_kernels(exported):
        raise Unprintable("the program calls a Triton kernel directly")
    example = Inputs(*exported.example_inputs)
    with torch.no_grad():
        built, loose = _printable(exported, example)
    weights = weights_of(built.exported)
    for name, value in weights.items():
        if type(value) is not torch.Tensor:
            raise Unprintable(f"the weight {name} is a {type(value).__name__}")
    call = exported.module_call_graph[0].signature
    assert call is not None
    values = pytree.tree_leaves([n.meta.get("val") for n in built.exported.graph.nodes])
    found = {each.device for each in values if isinstance(each, torch.Tensor)}
    write_source_archive(
        SourceProgram(
            source=print_program(built, device, loose, print_nothing),
            arguments=call.forward_arg_names or [],
            origins=origins_of(built.exported.graph_module),
            devices={torch.device(device)} if device else found,
            weights=weights,
            example=example,
        ),
        path,
    )


def _printable(
    exported: ExportedProgram, example: Inputs
) -> tuple[RebuiltCandidate, frozenset[str]]:
    """Return a form of the program whose source can be exported, with flat inputs.

    The program is functionalized if it cannot be printed with in-place operators.

    Returns:
        The program, and the sizes that are not declared by name.
    """
    flat = Inputs(tuple(example.flat()), {})
    built = RebuiltCandidate(exported, flat, flat)
    try:
        return built, export_source(built)[1]
    except Unprintable:
        functional = functionalise(exported)
        if functional is None:
            raise
    built = RebuiltCandidate(functional, flat, flat)
    return built, export_source(built)[1]
