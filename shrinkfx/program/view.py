"""The view of a candidate that strategies get."""

from __future__ import annotations

from collections.abc import Iterable

from shrinkfx.program.candidate import Candidate
from shrinkfx.program.skeleton import Skeleton


class View:
    """What a strategy sees: the candidate's graph and nothing that costs a check."""

    def __init__(self, candidate: Candidate) -> None:
        self._candidate = candidate

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
        """The values that are fed from outside and are no weights."""
        return self._candidate.inputs

    @property
    def replaceable(self) -> tuple[str, ...]:
        """The operators that a plain one could stand in for."""
        candidate = self._candidate
        return tuple(n for n in self.operators if candidate.is_replaceable(n))

    def operands(self, operator: str) -> list[str]:
        """The values that an operator gets, bypasses followed; never its own."""
        return [v for v in self._candidate.operands(operator) if v != operator]

    def same_value_type(self, operator: str, operand: str) -> bool:
        """Tell whether one of the operator's values has the type of ``operand``."""
        return bool(self.skeleton.values_like(operator, operand))

    def only_for(self, sink: str) -> frozenset[str]:
        """The kept operators that would have no use if ``sink`` were not there."""
        others = [s for s in self.sinks if s != sink]
        return self._ancestors([sink]) - self._ancestors(others)

    def _ancestors(self, names: Iterable[str]) -> frozenset[str]:
        seen: set[str] = set()
        stack = list(names)
        while stack:
            name = stack.pop()
            if name in seen:
                continue
            seen.add(name)
            stack += self._candidate.producers(name)
        return frozenset(seen)
