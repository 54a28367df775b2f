"""The loaded program and the inputs of its runs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram
from torch.export.graph_signature import ExportGraphSignature, OutputKind

from shrinkfx.worker.private_api.graph_api import pytree

MUTATIONS = frozenset({OutputKind.BUFFER_MUTATION, OutputKind.USER_INPUT_MUTATION})
"""Kinds of outputs that are written back instead of returned; they come first."""


Keywords = dict[str, Any]
"""Keyword arguments of a call; operators and Triton kernels take any value."""


@dataclass(frozen=True)
class Inputs:
    """The arguments of one call, in the structure that the program declares."""

    args: tuple[Any, ...]
    kwargs: Keywords

    def flat(self) -> list[Any]:
        return self.flatten()[0]

    def flatten(self) -> tuple[list[Any], Any]:
        """Return the values, and their structure."""
        leaves, structure = pytree.tree_flatten((self.args, self.kwargs))
        return leaves, structure

    @classmethod
    def unflatten(cls, leaves: list[Any], structure: Any) -> Inputs:
        """Return inputs of a structure that ``flatten`` has returned."""
        return cls(*pytree.tree_unflatten(leaves, structure))


@dataclass(frozen=True)
class Program:
    """The loaded input program and its inputs.

    Attributes:
        original: the program as the file holds it.
        graph: the program that candidates are cut from; without in-place operators,
            unless the failure needs them.
        example: the inputs that the program was exported with.
        failing: the inputs that the program fails on; the object ``example`` if the
            user passed none.
        passing: similar inputs on which the program passes, and candidates must pass,
            or None.
    """

    original: ExportedProgram
    graph: ExportedProgram
    example: Inputs
    failing: Inputs
    passing: Inputs | None = None

    def as_exported(self) -> Program:
        """Return this program with candidates cut from ``original``.

        That graph keeps its in-place operators.
        """
        return replace(self, graph=self.original)


def replace_graph(
    exported: ExportedProgram,
    root: fx.GraphModule,
    signature: ExportGraphSignature,
    **changes: Any,
) -> ExportedProgram:
    """Return the program with another graph.

    Args:
        root: the new graph, with its subgraphs.
        signature: its inputs and outputs.
        changes: other arguments of ``ExportedProgram`` that are not those of
            ``exported``.
    """
    root.meta.update(exported.graph_module.meta)
    same = {
        "state_dict": exported.state_dict,
        "range_constraints": exported.range_constraints,
        "module_call_graph": exported.module_call_graph,
        "example_inputs": exported.example_inputs,
        "constants": exported.constants,
        "verifiers": exported.verifiers,
    }
    return ExportedProgram(
        root=root, graph=root.graph, graph_signature=signature, **{**same, **changes}
    )


def flat_inputs(exported: ExportedProgram, inputs: Inputs) -> list[Any]:
    """Return the inputs of the program's graph: its weights, then the flattened inputs.

    Only the example goes through the program's own flattening, because that refuses
    sizes outside the declared ranges.
    """
    assert exported.example_inputs is not None
    example = exported._graph_module_flat_inputs(*exported.example_inputs)
    flat = inputs.flat()
    return [*example[: len(example) - len(flat)], *flat]


def user_placeholders(exported: ExportedProgram, inputs: Inputs) -> list[fx.Node]:
    """Return the placeholders of the flattened inputs, which follow the weights'."""
    nodes = [n for n in exported.graph.nodes if n.op == "placeholder"]
    weights = len(flat_inputs(exported, inputs)) - len(inputs.flat())
    return nodes[weights:]


def weights_of(exported: ExportedProgram) -> dict[str, str]:
    """Map the names of weight placeholders to the names of the weights."""
    signature = exported.graph_signature
    return {
        **signature.inputs_to_parameters,
        **signature.inputs_to_buffers,
        **signature.inputs_to_lifted_tensor_constants,
    }


def shared_weights(exported: ExportedProgram) -> dict[str, str]:
    """Map the weights that no operator writes into; a run needs no copy of them.

    If any operator of the graph writes into an argument, no weight is shared.
    """
    return {} if mutates_arguments(exported) else weights_of(exported)


def mutates_arguments(exported: ExportedProgram) -> bool:
    """Return whether an operator of the graph writes into one of its arguments."""
    schemas = (getattr(n.target, "_schema", None) for n in exported.graph.nodes)
    return any(schema is not None and schema.is_mutable for schema in schemas)


class Views:
    """Recognizes values that are views of a weight, such as a transposed weight."""

    def __init__(self, exported: ExportedProgram) -> None:
        stores = (exported.state_dict, exported.constants)
        self._weights = {
            target: store[target]
            for target in shared_weights(exported).values()
            for store in stores
            if isinstance(store.get(target), torch.Tensor)
        }
        self._names = {
            weight.untyped_storage().data_ptr(): target
            for target, weight in self._weights.items()
            if weight.numel()
        }

    def state(self, value: torch.Tensor) -> dict[str, Any]:
        """Describe a view of a weight by name, dtype and layout; {} for others."""
        name = self._names.get(value.untyped_storage().data_ptr())
        if (
            name is None
            or value.layout != torch.strided
            or value.is_conj()
            or value.is_neg()
        ):
            return {}
        layout = value.storage_offset(), value.size(), value.stride()
        return {"weight": name, "dtype": value.dtype, "place": layout}

    def read(self, stated: dict[str, Any]) -> torch.Tensor:
        """Rebuild the view that ``state`` has described."""
        memory = self._weights[stated["weight"]].untyped_storage()
        empty = torch.empty(0, dtype=stated["dtype"])
        return empty.set_(memory, *stated["place"])
