"""The loaded program and the inputs of its runs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from torch import fx
from torch.export import ExportedProgram
from torch.export.graph_signature import OutputKind

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
        leaves: list[Any] = pytree.tree_leaves((self.args, self.kwargs))
        return leaves


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
