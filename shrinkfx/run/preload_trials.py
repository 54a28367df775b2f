"""Compare cuts of preloads by their effect, and remove all parts without effect.

Halves are removed first, then smaller parts, so that few queries suffice if much or
nothing can go.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from shrinkfx.preloads.preload_bundle import PreloadBundle, PreloadCut, Unit
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
        effect = self.judge.effect(self.made(cut))
        if effect is None:
            return False
        wanted, actual = (each.without(self.besides) for each in (self.before, effect))
        if not wanted.is_kept_by(actual, self.operators):
            return False
        self.last = effect
        return True


def find_droppable_units(
    units: Sequence[Unit], fine: Callable[[Sequence[Unit]], bool], judge: Tires
) -> list[Unit]:
    """Return units that can go together; try halves first, a file's last ones first."""
    dropped: list[Unit] = []
    size = len(units)
    while size:
        remaining = [unit for unit in units if unit not in dropped]
        for end in range(len(remaining), 0, -size):
            chunk = remaining[max(0, end - size) : end]
            if judge.is_tired:
                return dropped
            if fine([*dropped, *chunk]):
                dropped += chunk
        size //= 2
    return dropped


def cut_without_units(units: Sequence[Unit]) -> PreloadCut:
    """Return a cut without units that have no effect."""
    preloads = frozenset(name for name, line, _ in units if not line)
    return PreloadCut(
        acts=frozenset(unit for unit in units if unit[1]), preloads=preloads
    )
