"""What a candidate has inside of its operators: nodes of branches and bodies.

They are not kept or dropped, since nothing can be fed into a body from outside. But one
of their operators may be bypassed as any other; what nobody uses then is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from typing import TYPE_CHECKING

from shrinkfx.program.skeleton import Role, Skeleton

if TYPE_CHECKING:
    from shrinkfx.program.candidate import Candidate


def inside(candidate: Candidate) -> tuple[str, ...]:
    """List the nodes of subgraphs that have an effect, in program order."""
    program = candidate.skeleton
    used = _used(program, candidate.keep, candidate.resolve)
    inner = (name for name in used if program.node(name).role is Role.INNER)
    return tuple(program.in_order(inner))


def read_inside(candidate: Candidate) -> set[str]:
    """Collect the values that subgraphs read or return, bypassed ones too."""
    program = candidate.skeleton
    used = _used(program, candidate.keep, candidate.resolve)
    return {value for name in used for value in program.node(name).operands}


def returns_an_input(candidate: Candidate, node: str, operand: str) -> bool:
    """Tell whether a subgraph would hand back what it was given, without ``node``.

    An export refuses that, as it does any result that shares memory with an input.
    """
    program = candidate.skeleton
    given = program.node(candidate.resolve(operand))
    if given.role is not Role.INNER or given.operands or given.operators:
        return False
    returned = map(candidate.resolve, program.node(graph_of(node)).operands)
    return node in returned


def gone(candidate: Candidate) -> int:
    """Count the operators that bypasses have taken out of subgraphs."""
    if not any(map(is_inside, candidate.bypass)):
        return 0
    program = candidate.skeleton
    before = _used(program, candidate.keep, lambda value: value)
    after = _used(program, candidate.keep, candidate.resolve)
    return sum(program.node(name).operators for name in before - after)


def is_inside(name: str) -> bool:
    """Tell whether a name is of a node of a subgraph."""
    return "." in name


def graph_of(name: str) -> str:
    """Name the subgraph that a node is of; '' for the program's own nodes."""
    return name.rpartition(".")[0]


def _used(program: Skeleton, keep: Set[str], resolve: Callable[[str], str]) -> set[str]:
    """Collect subgraphs of kept operators, and the nodes that their results need."""
    carriers = program.subgraphs.keys() & keep
    stack = [graph for name in carriers for graph in program.subgraphs[name]]
    found = set(stack)
    while stack:
        new = {resolve(v) for v in program.node(stack.pop()).operands} - found
        found |= new
        stack += new
    return found
