"""Compute the contents of buffers before a call by running earlier calls in eager."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind

from shrinkfx.protocol.compiled_program_view import EagerState
from shrinkfx.worker.eager.intermediates import SEED, copy_value
from shrinkfx.worker.model import MUTATIONS


def compute_call_inputs(
    exported: ExportedProgram, inputs: Sequence[Any], call: int
) -> list[Any]:
    """Return a program's flat inputs for a call, with the buffers of earlier calls.

    Args:
        call: the number of the call, from 1.
    """
    specs = exported.graph_signature.input_specs
    names = [spec.target for spec in specs]
    values = [copy_value(value) for value in inputs]
    for _ in range(call - 1):
        torch.manual_seed(SEED)
        with torch.no_grad():
            outputs = fx.Interpreter(exported.graph_module).run(*values)
        for index, spec in enumerate(specs):
            if spec.kind is InputKind.USER_INPUT:
                values[index] = copy_value(inputs[index])
        for (target, _), value in zip(_list_mutations(exported), outputs, strict=False):
            if target in names:
                values[names.index(target)] = value
    return values


def list_buffer_states(
    exported: ExportedProgram, values: Sequence[Any], call: int
) -> Iterator[EagerState]:
    """Yield the ranges of the numeric buffers that the program writes."""
    sources = dict(_list_mutations(exported))
    placeholders = exported.graph.find_nodes(op="placeholder")
    specs = exported.graph_signature.input_specs
    for node, spec, value in zip(placeholders, specs, values, strict=True):
        if spec.target not in sources or not isinstance(value, torch.Tensor):
            continue
        if not value.numel() or value.is_complex() or value.dtype is torch.bool:
            continue
        bounds = value.min().item(), value.max().item()
        yield EagerState(node.name, call, sources[spec.target], *map(str, bounds))


def _list_mutations(exported: ExportedProgram) -> list[tuple[str, str]]:
    """Pair each mutated input or buffer with the name of the node that it receives."""
    specs = exported.graph_signature.output_specs
    return [
        (spec.target, spec.arg.name)
        for spec in specs
        if spec.kind in MUTATIONS and spec.target and hasattr(spec.arg, "name")
    ]
