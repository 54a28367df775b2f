"""Whether the graph that Inductor lowers still computes what the program does.

Both are run in eager. Where they differ no kernel is at fault, but what has rewritten
the program before: functionalisation, a decomposition, or a pass.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram

from shrinkfx.protocol.kernel_values import KernelValues, Wrong
from shrinkfx.worker.explaining.errors import Tolerance, difference
from shrinkfx.worker.explaining.recompute import both_times, on_host, writers
from shrinkfx.worker.model import Inputs, flat_inputs

Origins = Callable[[fx.Node], list[str]]
"""Names the nodes of the program that one of Inductor's graph comes from."""


@dataclass(frozen=True)
class Ran:
    """A program that was run, and compared with eager.

    Attributes:
        calls: of it, the last of which the values are of.
    """

    exported: ExportedProgram
    inputs: Inputs
    calls: int
    tolerance: Tolerance
    origins: Origins


def with_graph(
    told: KernelValues, graph: fx.Graph, eager: Mapping[fx.Node, Any], ran: Ran
) -> KernelValues:
    """Add what the lowered graph computes in eager.

    Args:
        eager: its values, those that random numbers have no part in.
    """
    program = ran.exported.graph
    if ran.calls > 1 or any(writers(node) for node in program.nodes):
        return told  # its values change as it runs
    takers = program.find_nodes(op="placeholder")
    flat = flat_inputs(ran.exported, ran.inputs)
    known = dict(zip(takers, map(on_host, flat), strict=True))
    own = both_times(program, known)
    last = _last_of_each(graph, ran.origins)
    for node in program.nodes:
        if node.name in last and node in own:
            value = eager.get(last[node.name])
            wrong = differs(value, own[node], ran.tolerance)
            if wrong is not None and not wrong.metadata:
                return replace(told, rewritten=node.name, rewritten_wrong=wrong)
    agrees = _agree(_results(graph, eager), _results(program, own), ran.tolerance)
    return replace(told, graph_agrees=agrees)


def _last_of_each(graph: fx.Graph, origins: Origins) -> dict[str, fx.Node]:
    """Find where the value of a program's node is in the lowered graph."""
    last: dict[str, fx.Node] = {}
    for node in graph.nodes:
        names = origins(node) if node.op == "call_function" else []
        if len(names) == 1:
            last[names[0]] = node
    return last


def _results(graph: fx.Graph, values: Mapping[fx.Node, Any]) -> list[Any]:
    (output,) = graph.find_nodes(op="output")
    returned = list(output.args[0])
    return [values.get(v) if isinstance(v, fx.Node) else None for v in returned]


def _agree(mine: list[Any], theirs: list[Any], tolerance: Tolerance) -> bool | None:
    """Compare results; None where one is random, or could not be made."""
    values = [*mine, *theirs]
    if len(mine) != len(theirs) or any(v is None for v in values):
        return None
    pairs = zip(mine, theirs, strict=True)
    return all(differs(left, right, tolerance) is None for left, right in pairs)


def differs(value: Any, expected: Any, tolerance: Tolerance) -> Wrong | None:
    """Measure how one tensor differs from another; None where one is no tensor."""
    if isinstance(value, torch.Tensor) and isinstance(expected, torch.Tensor):
        return difference(value, expected, None, tolerance)
    return None
