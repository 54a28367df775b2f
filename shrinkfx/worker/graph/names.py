"""Original names of the values of a program that was exported again.

    softmax_3 = softmax(relu_7)  ->  printed, run, exported  ->  softmax = softmax(relu)

A value gets its original name if both programs call the same operators in the same
order on the same values. Otherwise the original names are unknown.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram
from torch.export.exported_program import ModuleCallEntry

from shrinkfx.worker.model import MUTATIONS
from shrinkfx.worker.origin import operator_nodes

_NEW_VALUE = "anew_"
"""Prefix of new values, such as a size that is read again."""


@dataclass(frozen=True)
class RecoveredNames:
    """The original names of values after a program was exported again.

    Attributes:
        before: original names, by current name.
        why_not: the reason why the original names are unknown, or ''.
    """

    before: Mapping[str, str] = field(default_factory=dict)
    why_not: str = ""

    def compose(self, later: RecoveredNames) -> RecoveredNames:
        """Return the original names after one more export."""
        if self.why_not or later.why_not:
            return RecoveredNames(why_not=self.why_not or later.why_not)
        pairs = later.before.items()
        names = {now: self.before[name] for now, name in pairs if name in self.before}
        return RecoveredNames(names)


class _NamesUnknown(Exception):
    """The original names are unknown; the message is the reason."""


def recover_names(before: ExportedProgram, after: ExportedProgram) -> RecoveredNames:
    """Find the names in ``before`` of the values in ``after``, its new export."""
    try:
        known = _inputs(before, after)
        _follow(before, after, known)
    except _NamesUnknown as why:
        return RecoveredNames(why_not=str(why))
    return RecoveredNames({now.name: node.name for now, node in known.items()})


def _inputs(before: ExportedProgram, after: ExportedProgram) -> dict[fx.Node, fx.Node]:
    """Pair inputs and weights by name, because printing keeps their names."""
    named = {node.name: node for node in before.graph.find_nodes(op="placeholder")}
    known = {}
    for node in after.graph.find_nodes(op="placeholder"):
        if node.name not in named:
            raise _NamesUnknown(f"an input or a weight is then called {node.name}")
        known[node] = named[node.name]
    return known


def _follow(
    before: ExportedProgram, after: ExportedProgram, known: dict[fx.Node, fx.Node]
) -> None:
    """Pair the results of operators that are the same and read the same values."""
    if any(node.op == "get_attr" for node in before.graph.nodes):
        raise _NamesUnknown("the values in its branches or loops then have other names")
    old, new = (
        operator_nodes(before.graph),
        _drop_write_copies(before, operator_nodes(after.graph)),
    )
    if [node.target for node in old] != [node.target for node in new]:
        raise _NamesUnknown("it then calls other operators")
    for old_node, new_node in zip(old, new, strict=True):
        if list(map(known.get, _tensors(new_node))) != _tensors(old_node):
            raise _NamesUnknown(f"{old_node.name} is computed from other values then")
        known[new_node] = old_node
        parts = _parts(old_node)
        for place, part in _parts(new_node).items():
            if place in parts:
                known[part] = parts[place]


def _drop_write_copies(before: ExportedProgram, new: list[fx.Node]) -> list[fx.Node]:
    """Leave out the final copies that write results into buffers and inputs.

    In ``before``, the graph signature states these writes.
    """
    specs = before.graph_signature.output_specs
    written = sum(spec.kind in MUTATIONS for spec in specs)
    first = len(new) - written
    is_copy = [node.target is torch.ops.aten.copy_.default for node in new[first:]]
    return new[:first] if written and all(is_copy) else new


def _tensors(node: fx.Node) -> list[fx.Node]:
    """List the tensor operands of an operator, without sizes, which are read again."""
    taken: list[fx.Node] = []
    fx.node.map_arg((node.args, node.kwargs), taken.append)
    return [n for n in taken if isinstance(n.meta.get("val"), torch.Tensor)]


def _parts(node: fx.Node) -> dict[Any, fx.Node]:
    """Return the getitem nodes of an operator with several results, by index."""
    users = [user for user in node.users if user.target is operator.getitem]
    return {user.args[1]: user for user in users}


def rename_values(
    exported: ExportedProgram, names: Mapping[str, str]
) -> ExportedProgram:
    """Return the same program with other names; a value without one gets a prefix."""
    graph = fx.Graph()
    new: dict[fx.Node, fx.Node] = {}
    for node in exported.graph.nodes:
        new_name = node.name
        if node.op == "call_function":
            new_name = names.get(node.name, _NEW_VALUE + node.name)
        args, kwargs = fx.node.map_arg((node.args, node.kwargs), new.__getitem__)
        copied = graph.create_node(
            node.op, node.target, args, kwargs, new_name, node.type
        )
        copied.name = new_name  # fx renames inputs named like built-ins
        copied.meta = dict(node.meta)
        new[node] = copied
    new_names = {node.name: copied.name for node, copied in new.items()}

    def rename_argument(argument: Any) -> Any:
        name = getattr(argument, "name", None)
        return (
            replace(argument, name=new_names[name]) if name in new_names else argument
        )

    signature, (entry, *_) = exported.graph_signature, exported.module_call_graph
    results = [
        replace(one, arg=rename_argument(one.arg)) for one in signature.output_specs
    ]
    call = entry.signature
    assert call is not None
    call = replace(call, outputs=[rename_argument(result) for result in call.outputs])
    root = fx.GraphModule(exported.graph_module, graph)
    root.meta.update(exported.graph_module.meta)
    return ExportedProgram(
        root=root,
        graph=root.graph,
        graph_signature=replace(signature, output_specs=results),
        state_dict=exported.state_dict,
        range_constraints=exported.range_constraints,
        module_call_graph=[ModuleCallEntry("", call)],
        example_inputs=exported.example_inputs,
        constants=exported.constants,
        verifiers=exported.verifiers,
    )
