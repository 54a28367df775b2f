"""Helpers for parts of Inductor's schedule: their inputs, outputs and nodes.

Private APIs of torch/_inductor/scheduler.py and ir.py, 2.11 to 2.13.
"""

from __future__ import annotations

from typing import Any

from torch import fx

from shrinkfx.worker.private_api import codegen_api


def is_program_graph(lowering: Any) -> bool:
    """Return whether a graph is the program's, not that of a branch or loop body."""
    return type(lowering).__name__ == "GraphLowering"


def list_outputs(part: Any) -> list[Any]:
    """List the buffers that a part of the schedule computes.

    Markers such as ``EnableReduction`` have none.
    """
    get_outputs = getattr(part, "get_outputs", None)
    return list(get_outputs()) if get_outputs and not isinstance(part, type) else []


def list_graph_inputs(lowering: Any) -> list[str]:
    """Name the variables of inputs and weights that are tensors."""
    inputs = lowering.graph_inputs.items()
    tensors = [name for name, box in inputs if hasattr(box, "get_layout")]
    return [*tensors, *lowering.constants]


def find_source_tuple(part: Any) -> str:
    """Return the name of the tuple that a result is taken from, or ''."""
    if type(part.node).__name__ != "MultiOutput" or not part.node.inputs:
        return ""
    return str(getattr(part.node.inputs[0], "get_name", str)())


def find_variable(buffer: Any) -> str:
    """Return the variable that holds a buffer: the one that it mutates, or itself."""
    name = buffer.get_name()
    return str(codegen_api.V.graph.scheduler.mutation_real_name.get(name, name))


def list_reads(part: Any) -> list[str]:
    """Name the variables that a part of the schedule reads."""
    real = codegen_api.V.graph.scheduler.mutation_real_name
    names = sorted(dep.name for dep in part.read_writes.reads)
    return [real.get(name, name) for name in names]


def get_operator_name(part: Any) -> str:
    """Return the user-visible name of an operator's call: ``aten.sort.default``."""
    called = getattr(part.node, "op_overload", None)
    made_by = getattr(part.node, "python_kernel_name", None)
    return str(called or made_by or type(part.node).__name__)


def is_tensor(node: Any) -> bool:
    """Return whether a node is a tensor, and not a tuple or a call without results."""
    layout = getattr(node, "layout", None)
    return type(layout).__name__ not in ("MultiOutputLayout", "NoneLayout", "NoneType")


def find_held_node(buffer: Any) -> fx.Node | None:
    """Return the node whose value a buffer holds; None if it is unknown.

    Inductor names a buffer after the node whose value it holds *in the end*. If several
    operators write into it (``index_put``), only the last write yields that value.
    """
    graph, variable = codegen_api.V.graph, find_variable(buffer)
    real = graph.scheduler.mutation_real_name
    renamed = [name for name, holder in real.items() if holder == variable]
    if buffer.get_name() not in ([variable] if not renamed else renamed[-1:]):
        return None
    if not renamed:
        holder = buffer.node
    elif variable in graph.name_to_buffer:
        holder = graph.name_to_buffer[variable]
    else:
        return None  # an input or a weight
    node = holder.get_origin_node()
    return node if isinstance(node, fx.Node) else None
