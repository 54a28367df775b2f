"""The operators of the reduced program, and their dependencies."""

from __future__ import annotations

from collections.abc import Collection

from shrinkfx.findings.operators import Operator
from shrinkfx.program.candidate import Candidate
from shrinkfx.program.listing.redirects import ancestors
from shrinkfx.program.walks import reached


def list_operators(candidate: Candidate) -> tuple[Operator, ...]:
    """Return the operators of a candidate, in program order.

    A replacement operator has no line of the model.
    """
    found = []
    for name in candidate.operators:
        node = candidate.skeleton.node(name)
        is_original = name not in candidate.replace
        place = (node.source, node.scope) if is_original else ("", "")
        found.append(Operator(name, candidate.target(name), *place))
    return tuple(found)


def find_last_operators(
    candidate: Candidate, names: Collection[str]
) -> tuple[Operator, ...]:
    """Return those of some operators that no other one of them depends on."""
    among = select_operators(candidate, names)
    feeding = find_dependencies(candidate, [one.name for one in among])
    return tuple(one for one in among if one.name not in feeding)


def find_dependencies(candidate: Candidate, names: Collection[str]) -> frozenset[str]:
    """Return the operators that some depend on, not across values that were cut."""
    if candidate.listing is not None:
        main = candidate.listing.main
        if {line.name for line in main.statements}.issuperset(names):
            dependencies = [
                ancestors(main, frozenset({name})) - {name} for name in names
            ]
            return candidate.keep.intersection(frozenset[str]().union(*dependencies))
    remaining = [name for name in names if name in candidate.keep]
    makers = {maker for name in remaining for maker in candidate.producers(name)}
    return frozenset(reached(makers, candidate.producers))


def select_operators(
    candidate: Candidate, names: Collection[str]
) -> tuple[Operator, ...]:
    """Return the operators of a candidate that nodes belong to, in program order."""
    skeleton = candidate.skeleton
    among = {skeleton.producer(name) for name in names if name in skeleton}
    return tuple(one for one in list_operators(candidate) if one.name in among)
