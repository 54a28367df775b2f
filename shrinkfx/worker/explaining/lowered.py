"""Check whether the graph that Inductor lowers computes what the program computes.

Both run in eager. If they differ, no kernel is at fault but a rewrite of the program:
functionalization, a decomposition, or a pass.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram

from shrinkfx.protocol.kernel_values import KernelValues, Wrong
from shrinkfx.worker.explaining.errors import Tolerance, measure_difference
from shrinkfx.worker.explaining.recompute import (
    copy_to_cpu,
    list_writers,
    run_deterministic,
    run_graph,
)
from shrinkfx.worker.model import Inputs, flat_inputs

Origins = Callable[[fx.Node], list[str]]
"""Returns the names of the program's nodes that a node of Inductor's graph comes
from."""


@dataclass(frozen=True)
class ComparedRun:
    """A program that was run and compared with eager.

    Attributes:
        calls: the number of calls; the values are those of the last one.
        metadata: whether its results differ from eager's in shape or dtype.
    """

    exported: ExportedProgram
    inputs: Inputs
    calls: int
    tolerance: Tolerance
    origins: Origins
    metadata: bool = False


def add_graph_results(
    facts: KernelValues, graph: fx.Graph, eager: Mapping[fx.Node, Any], ran: ComparedRun
) -> KernelValues:
    """Add the results of the lowered graph in eager to a report of kernel values.

    If they differ from the program's, this adds the first rewritten node, or the lost
    write.

    Args:
        facts: the report.
        eager: the graph's values in eager, without those that depend on random numbers.
    """
    if ran.calls > 1:
        return facts
    program = ran.exported.graph
    placeholders = program.find_nodes(op="placeholder")
    flat = flat_inputs(ran.exported, ran.inputs)
    known = dict(zip(placeholders, map(copy_to_cpu, flat), strict=True))
    values = run_deterministic(program, known)
    got, expected = _results(graph, eager), _results(program, values)
    agrees = _compare_results(got, expected, ran.tolerance)
    facts = replace(facts, graph_agrees=agrees)
    if agrees is not False:
        return facts
    wrong = [
        measure_tensor_difference(*pair, ran.tolerance)
        for pair in zip(got, expected, strict=True)
    ]
    facts = replace(facts, rewritten_wrong=next(filter(None, wrong)))
    writers = [n for n in program.nodes if any(map(_writes_into(n), n.all_input_nodes))]
    if writers:  # a node's value changes as the program runs
        return replace(facts, lost=_find_lost_write(writers, program, known, got, ran))
    for node in program.nodes:
        parts = _parts(graph, node.name, ran.origins)
        diff = _measure_last([eager.get(part) for part in parts], values.get(node), ran)
        if diff is not None:
            return replace(facts, rewritten=node.name, rewritten_wrong=diff)
    return facts


def _writes_into(node: fx.Node) -> Callable[[fx.Node], bool]:
    """Return a predicate: whether ``node`` writes into an operand."""
    return lambda operand: node in list_writers(operand)


def _find_lost_write(
    writers: list[fx.Node],
    program: fx.Graph,
    known: Mapping[fx.Node, Any],
    results: list[Any],
    ran: ComparedRun,
) -> str:
    """Return the operator without whose write eager gives the same results, or ''.

    It is '' as well if there are several such operators.
    """
    lost = []
    for node in writers:
        copies = {n: copy_to_cpu(v) for n, v in known.items()}
        values = run_graph(program, copies, seed=0, ignored=node)
        if _compare_results(results, _results(program, values), ran.tolerance):
            lost.append(node.name)
    return lost[0] if len(lost) == 1 else ""


def _parts(graph: fx.Graph, name: str, origins: Origins) -> list[fx.Node]:
    """List the graph's calls that come from one node of the program and no other."""
    calls = (node for node in graph.nodes if node.op == "call_function")
    return [node for node in calls if origins(node) == [name]]


def _measure_last(values: list[Any], expected: Any, ran: ComparedRun) -> Wrong | None:
    """Measure how the last of several values differs; None if any of them is right."""
    if not isinstance(expected, torch.Tensor):
        return None
    tensors = [value for value in values if isinstance(value, torch.Tensor)]
    errors = [
        measure_difference(value, expected, None, ran.tolerance) for value in tensors
    ]
    measured = [wrong for wrong in errors if wrong is not None and not wrong.metadata]
    return measured[-1] if measured and all(errors) else None


def _results(graph: fx.Graph, values: Mapping[fx.Node, Any]) -> list[Any]:
    """List the values that a graph returns; None for each one that is missing."""
    (output,) = graph.find_nodes(op="output")
    returned = list(output.args[0])
    return [values.get(v) if isinstance(v, fx.Node) else None for v in returned]


def _compare_results(
    actual: list[Any], expected: list[Any], tolerance: Tolerance
) -> bool | None:
    """Return whether results agree; None if one is random or could not be computed."""
    values = [*actual, *expected]
    if len(actual) != len(expected) or any(v is None for v in values):
        return None
    pairs = zip(actual, expected, strict=True)
    return all(
        measure_tensor_difference(left, right, tolerance) is None
        for left, right in pairs
    )


def measure_tensor_difference(
    value: Any, expected: Any, tolerance: Tolerance
) -> Wrong | None:
    """Measure how one tensor differs from another; None if either is no tensor."""
    if isinstance(value, torch.Tensor) and isinstance(expected, torch.Tensor):
        return measure_difference(value, expected, None, tolerance)
    return None
