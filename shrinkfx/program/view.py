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

    def operands(self, operator: str) -> list[str]:
        """The values that an operator gets, bypasses followed."""
        return self._candidate.operands(operator)

    def same_value_type(self, operator: str, operand: str) -> bool:
        """Tell whether one of the operator's values has the type of ``operand``."""
        wanted = self.skeleton.node(operand).value
        values = self.skeleton.values(operator)
        return wanted is not None and any(
            self.skeleton.node(v).value == wanted for v in values
        )

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
