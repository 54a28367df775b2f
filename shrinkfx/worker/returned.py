"""What a rebuilt candidate returns, and what it writes back into buffers."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import fx
from torch.export import ExportedProgram
from torch.export.graph_signature import OutputKind, OutputSpec, TensorArgument

from shrinkfx.program.candidate import Candidate, Outputs
from shrinkfx.worker.load import MUTATIONS
from shrinkfx.worker.symbols import CannotRebuild

Returned = tuple[OutputSpec, str]
"""How a value leaves the program, and its name in the original."""


def returned(
    exported: ExportedProgram, candidate: Candidate, new: Mapping[str, fx.Node]
) -> list[Returned]:
    """List what the program returns; mutations come first, as in exports.

    Args:
        exported: the original.
        new: the candidate's nodes by the names of the original's.

    Raises:
        CannotRebuild: that is nothing.
    """
    chosen: list[Returned] = []
    if candidate.outputs is Outputs.ORIGINAL:
        chosen = _original(exported, candidate, new)
    there = {name for _, name in chosen}
    nodes = {n.name: n for n in exported.graph.nodes}
    for sink in candidate.sinks:
        written = [candidate.resolve(v) for v in _written(nodes[sink])]
        for name in candidate.skeleton.values(sink) or written:
            if name not in there:
                there.add(name)
                chosen.append((_user_output(new[name]), name))
    if not chosen:
        raise CannotRebuild("it would return nothing")
    return sorted(chosen, key=lambda pair: pair[0].kind not in MUTATIONS)


def _original(
    exported: ExportedProgram, candidate: Candidate, new: Mapping[str, fx.Node]
) -> list[Returned]:
    """List what is still there of what the original wrote and returned.: a value may be both."""
    signature = exported.graph_signature
    fed = {signature.inputs_to_buffers.get(name) for name in candidate.feeds}
    chosen: list[Returned] = []
    for spec in signature.output_specs:
        name = getattr(spec.arg, "name", None)
        if name is None or name not in new or not _is_tensor(new[name]):
            continue
        if candidate.skeleton.producer(name) not in candidate.keep:
            continue
        found = _user_output(new[name])
        if spec.kind is OutputKind.BUFFER_MUTATION and spec.target in fed:
            found = OutputSpec(spec.kind, found.arg, spec.target)
        if (found, name) not in chosen:
            chosen.append((found, name))
    return chosen


def _written(node: fx.Node) -> list[str]:
    """List what an operator without a result of its own writes into."""
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


def _user_output(node: fx.Node) -> OutputSpec:
    argument = TensorArgument(name=node.name)
    return OutputSpec(OutputKind.USER_OUTPUT, argument, None)
