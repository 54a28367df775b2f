"""The view of a candidate that strategies get."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from shrinkfx.program.apply import can_read, repeats
from shrinkfx.program.candidate import Candidate
from shrinkfx.program.edits import Specialisation
from shrinkfx.program.listing.printed_program import UNTYPED, PrintedProgram, Types
from shrinkfx.program.skeleton import Skeleton

NO_SUSPECTS: Mapping[str, float] = MappingProxyType({})
"""No suspects: the origin of the failure is unknown."""


class View:
    """The interface of a candidate for strategies; no method costs a check.

    Attributes:
        suspects: kept operators that the failure points at, with weights; 1 means
            almost certain.
        types: the types of values in a printed program, as far as known.
    """

    def __init__(
        self,
        candidate: Candidate,
        suspects: Mapping[str, float] = NO_SUSPECTS,
        types: Types = UNTYPED,
    ) -> None:
        self._candidate = candidate
        self.suspects = {n: w for n, w in suspects.items() if n in candidate.keep}
        self.types = types

    @property
    def listing(self) -> PrintedProgram:
        """The printed program, for strategies that rewrite it."""
        listing = self._candidate.listing
        assert listing is not None, "it is no listing"
        return listing

    @property
    def skeleton(self) -> Skeleton:
        return self._candidate.skeleton

    @property
    def operators(self) -> tuple[str, ...]:
        """The kept operators in program order."""
        return self._candidate.operators

    @property
    def sinks(self) -> tuple[str, ...]:
        return self._candidate.sinks

    @property
    def inputs(self) -> tuple[str, ...]:
        """The values that are fed from outside and are not weights."""
        return self._candidate.inputs

    @property
    def replaceable(self) -> tuple[str, ...]:
        """The operators that a simple operator can replace."""
        candidate = self._candidate
        return tuple(n for n in self.operators if candidate.is_replaceable(n))

    @property
    def subgraph_nodes(self) -> tuple[str, ...]:
        """The nodes of branches and loop bodies, with inputs, in program order."""
        return self._candidate.subgraph_nodes

    @property
    def specialisations(self) -> dict[str, list[Specialisation]]:
        """The dynamic sizes, each with its possible specializations."""
        return self._candidate.dynamic_sizes.specialisations()

    def suspicion(self, operators: Iterable[str]) -> float:
        """Return the largest suspect weight among operators; 0 if none is suspect."""
        return max((self.suspects.get(name, 0.0) for name in operators), default=0.0)

    def operands(self, operator: str) -> list[str]:
        """Return the values that an operator reads after bypasses, except its own."""
        return [v for v in self._candidate.operands(operator) if v != operator]

    def same_value_type(self, operator: str, operand: str) -> bool:
        """Return whether one of the operator's values has the type of ``operand``."""
        return bool(self.skeleton.values_like(operator, operand))

    def can_bypass(self, operator: str, operand: str) -> bool:
        """Return whether ``operand`` can replace an operator for all its users.

        It has the type of the operator, or the operator only repeats it, as ``expand``
        does, and all users broadcast.
        """
        if self.same_value_type(operator, operand):
            return True
        is_repeated = repeats(self.skeleton, operator, operand)
        return is_repeated and can_read(self._candidate, operator, operand)

    def slices(self) -> list[frozenset[str]]:
        """Return, for each sink, the kept operators that only this sink needs.

        In terms of dominators from the outputs, these are the operators that the sink
        dominates. Operators are in topological order, so one pass suffices: 15 ms for
        5,000, where networkx takes 60 to 80 with ``immediate_dominators``, half of that
        to make the graph (``benchmarks/walks.py``).
        """
        serves: dict[str, str | None] = {sink: sink for sink in self.sinks}
        for name in reversed(self.operators):
            for producer in self._candidate.producers(name):
                sink = serves.setdefault(producer, serves[name])
                serves[producer] = sink if sink == serves[name] else None
        slices: dict[str, set[str]] = {sink: set() for sink in self.sinks}
        for name, sink in serves.items():
            if sink is not None:
                slices[sink].add(name)
        return [frozenset(nodes) for nodes in slices.values()]
