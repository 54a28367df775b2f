"""What is left of a program, and where that comes from."""

from __future__ import annotations

from shrinkfx.program.candidate import Candidate
from shrinkfx.report.explanation.operators import Operator


def operators(candidate: Candidate) -> tuple[Operator, ...]:
    """List the operators of a candidate, in its order.

    One that stands in for another comes from no line of the model.
    """
    found = []
    for name in candidate.operators:
        node = candidate.skeleton.node(name)
        own = name not in candidate.replace
        place = (node.source, node.scope) if own else ("", "")
        found.append(Operator(name, candidate.target(name), *place))
    return tuple(found)
