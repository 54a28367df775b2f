"""The nodes inside operators: those of branches and loop bodies.

They cannot be kept or dropped, because no value can be fed into a body from outside.
But such an operator can be bypassed like any other, and nodes without users then
disappear.
"""

from __future__ import annotations

from collections.abc import Callable, Set

from shrinkfx.program.skeleton import Role, Skeleton
from shrinkfx.program.walks import reached

Resolve = Callable[[str], str]
"""A function that returns the value which the users of a value get after bypasses."""


def subgraph_nodes(
    program: Skeleton, keep: Set[str], resolve: Resolve
) -> tuple[str, ...]:
    """List the nodes in subgraphs of kept operators that have an effect, in order."""
    used = _used(program, keep, resolve)
    inner = (name for name in used if program.node(name).role is Role.SUBGRAPH_NODE)
    return tuple(program.in_order(inner))


def values_in_subgraphs(
    program: Skeleton, keep: Set[str], resolve: Resolve
) -> set[str]:
    """Collect the values that subgraphs read or return, including bypassed ones."""
    used = _used(program, keep, resolve)
    return {value for name in used for value in program.node(name).operands}


def returns_an_input(
    program: Skeleton, resolve: Resolve, node: str, operand: str
) -> bool:
    """Return whether a subgraph would return its own input without ``node``.

    Export refuses this, like any result that shares memory with an input.
    """
    source = program.node(resolve(operand))
    if source.role is not Role.SUBGRAPH_NODE or source.operands or source.operators:
        return False
    returned = map(resolve, program.node(graph_of(node)).operands)
    return node in returned


def count_bypassed(
    program: Skeleton, keep: Set[str], bypassed: Set[str], resolve: Resolve
) -> int:
    """Count the operators that bypasses have removed from subgraphs."""
    if not any(map(is_subgraph_node, bypassed)):
        return 0
    before = _used(program, keep, lambda value: value)
    after = _used(program, keep, resolve)
    return sum(program.node(name).operators for name in before - after)


def is_subgraph_node(name: str) -> bool:
    """Return whether a name is that of a node in a subgraph."""
    return "." in name


def graph_of(name: str) -> str:
    """Return the name of the subgraph of a node; '' for the program's own nodes."""
    return name.rpartition(".")[0]


def _used(program: Skeleton, keep: Set[str], resolve: Resolve) -> set[str]:
    """Collect the subgraphs of kept operators, and the nodes that they need."""
    carriers = program.subgraphs.keys() & keep
    graphs = [graph for name in carriers for graph in program.subgraphs[name]]
    return set(reached(graphs, lambda v: map(resolve, program.node(v).operands)))
