"""Compare ways to cut preloads by what they do, and leave out all that may go.

Halves go first, then smaller parts: few questions where much or nothing may go.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from shrinkfx.report.carried import Carried, Cut, Unit
from shrinkfx.run.preload_effects import Effect, PreloadOracle


class Tires(Protocol):
    """Whoever answers questions, as long as there is time for them."""

    @property
    def is_tired(self) -> bool: ...


@dataclass
class Trials:
    """Compares cuts with what was there before, but for what is at some places.

    Attributes:
        last: what the last one did that was enough.
        besides: the places where anything may be.
    """

    made: Callable[[Cut], Carried]
    judge: PreloadOracle
    operators: Sequence[str]
    before: Effect
    last: Effect
    besides: frozenset[str] = frozenset()

    def suffice(self, cut: Cut) -> bool:
        seen = self.judge.effect(self.made(cut))
        if seen is None:
            return False
        wanted, less = (each.without(self.besides) for each in (self.before, seen))
        if not wanted.is_kept_by(less, self.operators):
            return False
        self.last = seen
        return True


def droppable(
    units: Sequence[Unit], fine: Callable[[Sequence[Unit]], bool], judge: Tires
) -> list[Unit]:
    """Find units that may go together: halves first, the last ones of a file first."""
    gone: list[Unit] = []
    size = len(units)
    while size:
        left = [unit for unit in units if unit not in gone]
        for end in range(len(left), 0, -size):
            chunk = left[max(0, end - size) : end]
            if judge.is_tired:
                return gone
            if fine([*gone, *chunk]):
                gone += chunk
        size //= 2
    return gone


def without(units: Sequence[Unit]) -> Cut:
    """Leave out what has been shown to have no effect."""
    preloads = frozenset(name for name, line, _ in units if not line)
    return Cut(acts=frozenset(unit for unit in units if unit[1]), preloads=preloads)
