"""Parts of Inductor's schedule, and what they read and make.

Private APIs of torch/_inductor/scheduler.py and ir.py, 2.11 to 2.13.
"""

from __future__ import annotations

from typing import Any

from torch import fx

from shrinkfx.worker.private_api import codegen_api


def is_whole(lowering: Any) -> bool:
    """Tell the program's graph from those of branches and bodies."""
    return type(lowering).__name__ == "GraphLowering"


def outputs_of(part: Any) -> list[Any]:
    """List the buffers that a part of the schedule makes.

    ``EnableReduction`` and its like are no parts.
    """
    found = getattr(part, "get_outputs", None)
    return list(found()) if found and not isinstance(part, type) else []


def inputs_of(lowering: Any) -> list[str]:
    """Name the variables of inputs and weights that are tensors."""
    given = lowering.graph_inputs.items()
    tensors = [name for name, box in given if hasattr(box, "get_layout")]
    return [*tensors, *lowering.constants]


def taken_from(part: Any) -> str:
    """Name the tuple that one of several results is taken from, or ''."""
    if type(part.node).__name__ != "MultiOutput" or not part.node.inputs:
        return ""
    return str(getattr(part.node.inputs[0], "get_name", str)())


def variable_of(buffer: Any) -> str:
    """Name what holds a buffer: that which is written into, or itself."""
    name = buffer.get_name()
    return str(codegen_api.V.graph.scheduler.mutation_real_name.get(name, name))


def reads_of(part: Any) -> list[str]:
    real = codegen_api.V.graph.scheduler.mutation_real_name
    names = sorted(dep.name for dep in part.read_writes.reads)
    return [real.get(name, name) for name in names]


def name_of(part: Any) -> str:
    """Name an operator's call as users know it: ``aten.sort.default``."""
    called = getattr(part.node, "op_overload", None)
    made_by = getattr(part.node, "python_kernel_name", None)
    return str(called or made_by or type(part.node).__name__)


def is_tensor(node: Any) -> bool:
    """Leave out tuples of results, and calls that have none."""
    layout = getattr(node, "layout", None)
    return type(layout).__name__ not in ("MultiOutputLayout", "NoneLayout", "NoneType")


def node_of(buffer: Any) -> fx.Node | None:
    """Find the node of which a buffer holds the value; None if none is known to.

    Inductor calls a buffer by the node that it holds the value of *in the end*: of one
    that is written to by and by (``index_put``), only the last write makes that.
    """
    graph, variable = codegen_api.V.graph, variable_of(buffer)
    real = graph.scheduler.mutation_real_name
    renamed = [name for name, held in real.items() if held == variable]
    if buffer.get_name() not in ([variable] if not renamed else renamed[-1:]):
        return None
    if not renamed:
        held = buffer.node
    elif variable in graph.name_to_buffer:
        held = graph.name_to_buffer[variable]
    else:
        return None  # an input, or a weight
    node = held.get_origin_node()
    return node if isinstance(node, fx.Node) else None
