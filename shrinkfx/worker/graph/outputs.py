"""Outputs and buffer mutations of a rebuilt candidate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import fx
from torch.export import ExportedProgram
from torch.export.graph_signature import OutputKind, OutputSpec, TensorArgument

from shrinkfx.program.candidate import Candidate, Outputs
from shrinkfx.worker.graph.symbols import CannotRebuild

GraphOutputs = tuple[OutputSpec, str]
"""The output spec of a value, and its name in the input program."""


def graph_outputs(
    exported: ExportedProgram,
    candidate: Candidate,
    new: Mapping[str, fx.Node],
    taps: Sequence[str] = (),
) -> list[GraphOutputs]:
    """List the outputs, with buffer mutations first, as in exported programs.

    Args:
        exported: the input program.
        new: the candidate's nodes, by the names of the input program.
        taps: values to return in addition.

    Raises:
        CannotRebuild: the candidate would return nothing.
    """
    original = [
        name for name in _original(exported, candidate) if _is_tensor(new[name])
    ]
    sinks = _sinks(exported, candidate)
    names = original + [name for name in sinks if name not in candidate.writes]
    # Only returned values can be compared, so return the sinks if nothing else is.
    names = (names or sinks) + list(taps)
    if not names:
        raise CannotRebuild("it would return nothing")
    targets = exported.graph_signature.inputs_to_buffers
    return [
        *(
            (_buffer_mutations(new[v], targets[b]), v)
            for v, b in candidate.writes.items()
        ),
        *((_user_output(new[name]), name) for name in dict.fromkeys(names)),
    ]


def _original(exported: ExportedProgram, candidate: Candidate) -> list[str]:
    """List the outputs of the input program that the candidate still computes.

    These include values for buffers that the candidate cannot write any more.
    """
    if candidate.outputs is not Outputs.ORIGINAL:
        return []
    found = []
    for spec in exported.graph_signature.output_specs:
        name = getattr(spec.arg, "name", None)
        stored = spec.kind is OutputKind.BUFFER_MUTATION and name in candidate.writes
        if name is None or name not in candidate.skeleton or stored:
            continue
        if candidate.skeleton.producer(name) in candidate.keep:
            found.append(name)
    return found


def _sinks(exported: ExportedProgram, candidate: Candidate) -> list[str]:
    """List unused values; for operators without results, the values they write."""
    nodes = {n.name: n for n in exported.graph.nodes}
    return [
        name
        for sink in candidate.sinks
        for name in candidate.skeleton.values(sink)
        or [candidate.resolve(value) for value in _written_into(nodes[sink])]
    ]


def _written_into(node: fx.Node) -> list[str]:
    """List the values that an operator writes into."""
    schema = getattr(node.target, "_schema", None)
    arguments = zip(schema.arguments if schema else (), node.args, strict=False)
    return [
        value.name
        for argument, value in arguments
        if isinstance(value, fx.Node)
        and argument.alias_info is not None
        and argument.alias_info.is_write
    ]


def _is_tensor(node: fx.Node) -> bool:
    return isinstance(node.meta.get("val"), torch.Tensor)


def _buffer_mutations(node: fx.Node, target: str) -> OutputSpec:
    argument = TensorArgument(name=node.name)
    return OutputSpec(OutputKind.BUFFER_MUTATION, argument, target)


def _user_output(node: fx.Node) -> OutputSpec:
    argument = TensorArgument(name=node.name)
    return OutputSpec(OutputKind.USER_OUTPUT, argument, None)
