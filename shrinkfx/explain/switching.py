"""Which of its decisions the compiler must take for the minimum to fail."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from shrinkfx.explain.switches import SWITCHES, On, Switch
from shrinkfx.explain.variants import Variants
from shrinkfx.failure.verdict import Outcome
from shrinkfx.protocol.descriptions import Settings
from shrinkfx.report.explanation.decisions import Setting, Switching
from shrinkfx.search.bundles import Subset
from shrinkfx.search.odds import Beliefs, Key

MOST = 30
"""Compilations that the search may take."""

_PARTS = 10
"""Of these, where all switches make another failure: to find some that do not."""


class SwitchOdds(Beliefs[Switch]):
    """p of each switch: few are needed, and nothing points at any."""

    def __init__(self, count: int) -> None:
        super().__init__({}, count, guess=2)

    def about(self, item: Switch) -> Iterable[Key]:
        """Name it."""
        return [(Switch, item.option)]


def needed_switches(variants: Variants) -> Switching:
    """Find a 1-minimal set of switches with which the minimum passes.

    Raises:
        BudgetExhausted: minutes are short.
    """
    known = variants.settings({s.option: s.careful for s in SWITCHES})
    if known is None:
        return Switching(unknown="the worker did not report the settings of Inductor")
    device = On.CUDA if known.for_cuda else On.CPU
    table = [s for s in SWITCHES if s.on in (device, On.BOTH)]
    return _search(variants, _that_decide(table, known), _without(table, known))


def _that_decide(table: Sequence[Switch], known: Settings) -> list[Switch]:
    """Keep the switches that change something."""
    return [
        switch
        for switch in table
        if switch.option in known.values
        and switch.option not in known.fixed
        and known.values[switch.option] != switch.careful
    ]


def _without(table: Sequence[Switch], known: Settings) -> Switching:
    """Say which switches there are not."""
    options = [switch.option for switch in table]
    return Switching(
        missing=tuple(name for name in options if name not in known.values),
        fixed=tuple(name for name in options if name in known.fixed),
    )


def _search(variants: Variants, switches: list[Switch], found: Switching) -> Switching:
    """Ask about all of them, and then about ever fewer."""
    found = replace(found, tried=len(switches), settings=_settings(switches))
    before = len(variants.answers)
    start, why = _part_that_passes(variants, switches)
    if start:
        holds = _Passes(variants, before + MOST - 1)
        subset = Subset(start, SwitchOdds(len(start)), holds)
        try:
            kept, minimal = subset.run(), True
        except _Enough:
            kept, minimal = subset.kept, False
        # As AOTInductor builds it, and as a coincidence would not do twice.
        if variants.built_stock().with_settings(_careful(kept)) is Outcome.PASSED:
            found = replace(found, passes_with=_settings(kept), minimal=minimal)
        else:
            why = "the program does not pass with the found options in every run"
    return replace(found, unknown=why, compilations=len(variants.answers) - before)


def _settings(switches: Iterable[Switch]) -> tuple[Setting, ...]:
    return tuple(Setting(s.option, s.careful, s.what) for s in switches)


class _Enough(Exception):
    """So many compilations are as many as there may be."""


@dataclass(frozen=True)
class _Passes:
    """Asks whether it passes with some switches, until there are so many answers."""

    variants: Variants
    most: int

    def __call__(self, part: Sequence[Switch]) -> bool:
        if len(self.variants.answers) >= self.most:
            raise _Enough
        return self.variants.with_settings(_careful(part)) is Outcome.PASSED


def _careful(part: Iterable[Switch]) -> dict[str, bool | int | str]:
    return {switch.option: switch.careful for switch in part}


def _part_that_passes(
    variants: Variants, switches: list[Switch]
) -> tuple[list[Switch], str]:
    """Find switches with which it passes: all, or else a part of them.

    Where all together make it fail otherwise, some do that which others need not.

    Returns:
        None of them where it fails as it does with all; and why, if nobody knows.
    """
    parts, asked = deque([switches]), 0
    while parts and asked < _PARTS:
        part, asked = parts.popleft(), asked + 1
        outcome = variants.with_settings(_careful(part))
        if outcome is Outcome.PASSED:
            return part, ""
        if outcome is Outcome.REPRODUCED:
            if part is switches:
                return [], ""
        elif len(part) > 1:
            half = len(part) // 2
            parts += [part[:half], part[half:]]
    return [], (
        "with all of them the program fails differently, and with no tested subset it "
        "passes"
    )
