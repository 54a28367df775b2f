"""What is reduced, and the inputs of its runs: what everybody in here needs."""

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
"""Arguments of a call by name: torch's operators and Triton's kernels take anything."""


@dataclass(frozen=True)
class Inputs:
    """Arguments of one call, in the program's own structure."""

    args: tuple[Any, ...]
    kwargs: Keywords

    def flat(self) -> list[Any]:
        leaves: list[Any] = pytree.tree_leaves((self.args, self.kwargs))
        return leaves


@dataclass(frozen=True)
class Program:
    """What is reduced.

    Attributes:
        original: as the file holds it.
        graph: what candidates are cut from: without in-place operators, unless
            the failure needs those.
        example: the inputs it was exported with.
        failing: the inputs it fails on; ``example`` itself where none are given.
        passing: near inputs on which it passes and must go on to, or None.
    """

    original: ExportedProgram
    graph: ExportedProgram
    example: Inputs
    failing: Inputs
    passing: Inputs | None = None

    def as_exported(self) -> Program:
        """Cut from the original itself, in-place operators and all."""
        return replace(self, graph=self.original)


def flat_inputs(exported: ExportedProgram, inputs: Inputs) -> list[Any]:
    """List what a program's graph takes: its weights, then the inputs flattened.

    The program's own way refuses sizes outside of its ranges; the example is inside.
    """
    assert exported.example_inputs is not None
    example = exported._graph_module_flat_inputs(*exported.example_inputs)
    given = inputs.flat()
    return [*example[: len(example) - len(given)], *given]


def user_placeholders(exported: ExportedProgram, inputs: Inputs) -> list[fx.Node]:
    """List the nodes that take the flat inputs: those behind the weights."""
    nodes = [n for n in exported.graph.nodes if n.op == "placeholder"]
    weights = len(flat_inputs(exported, inputs)) - len(inputs.flat())
    return nodes[weights:]
