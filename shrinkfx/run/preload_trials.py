"""Compare cuts of preloads by their effect, and remove all parts without effect.

Halves are removed first, then smaller parts, so that few queries suffice if much or
nothing can go.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from shrinkfx.report.preload_bundle import PreloadBundle, PreloadCut, Unit
from shrinkfx.run.preload_effects import Effect, PreloadOracle


class Tires(Protocol):
    """An oracle that answers queries until its time is up."""

    @property
    def is_tired(self) -> bool: ...


@dataclass
class Trials:
    """Compares cuts with the uncut preloads, except for changes at some places.

    Attributes:
        last: the effect of the last cut that was sufficient.
        besides: places whose changes do not count.
    """

    made: Callable[[PreloadCut], PreloadBundle]
    judge: PreloadOracle
    operators: Sequence[str]
    before: Effect
    last: Effect
    besides: frozenset[str] = frozenset()

    def suffice(self, cut: PreloadCut) -> bool:
        seen = self.judge.effect(self.made(cut))
        if seen is None:
            return False
        wanted, less = (each.without(self.besides) for each in (self.before, seen))
        if not wanted.is_kept_by(less, self.operators):
            return False
        self.last = seen
        return True


def find_droppable_units(
    units: Sequence[Unit], fine: Callable[[Sequence[Unit]], bool], judge: Tires
) -> list[Unit]:
    """Return units that can go together; try halves first, a file's last ones first."""
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


def cut_without_units(units: Sequence[Unit]) -> PreloadCut:
    """Return a cut without units that have no effect."""
    preloads = frozenset(name for name, line, _ in units if not line)
    return PreloadCut(
        acts=frozenset(unit for unit in units if unit[1]), preloads=preloads
    )
