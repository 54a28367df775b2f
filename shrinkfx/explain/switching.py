"""Find the compiler decisions that the failure needs, by Inductor options."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from shrinkfx.explain.switches import SWITCHES, Switch, SwitchDevice
from shrinkfx.explain.variants import Variants
from shrinkfx.failure.verdict import Outcome
from shrinkfx.protocol.descriptions import Settings
from shrinkfx.report.explanation.decisions import OptionSearch, Setting
from shrinkfx.search.bundles import Subset
from shrinkfx.search.odds import Key, Probabilities

MOST = 30
"""Maximum number of compilations in the search."""

_PARTS = 10
"""Maximum number of subsets to try if all options cause another failure."""


class SwitchProbabilities(Probabilities[Switch]):
    """Probability that a switch is needed; few are, and there is no prior evidence."""

    def __init__(self, count: int) -> None:
        super().__init__({}, count, guess=2)

    def about(self, item: Switch) -> Iterable[Key]:
        """Return the option's name as its only feature."""
        return [(Switch, item.option)]


def needed_switches(variants: Variants) -> OptionSearch:
    """Find a 1-minimal set of switches with which the program passes.

    Raises:
        BudgetExhausted: there is too little time.
    """
    known = variants.settings({s.option: s.conservative for s in SWITCHES})
    if known is None:
        return OptionSearch(
            unknown="the worker did not report the settings of Inductor"
        )
    device = SwitchDevice.CUDA if known.for_cuda else SwitchDevice.CPU
    table = [s for s in SWITCHES if s.on in (device, SwitchDevice.BOTH)]
    return _search(variants, _that_decide(table, known), _list_missing(table, known))


def _that_decide(table: Sequence[Switch], known: Settings) -> list[Switch]:
    """Return the switches that change something."""
    return [
        switch
        for switch in table
        if switch.option in known.values
        and switch.option not in known.fixed
        and known.values[switch.option] != switch.conservative
    ]


def _list_missing(table: Sequence[Switch], known: Settings) -> OptionSearch:
    """Return which switches this PyTorch lacks, and which are fixed."""
    options = [switch.option for switch in table]
    return OptionSearch(
        missing=tuple(name for name in options if name not in known.values),
        fixed=tuple(name for name in options if name in known.fixed),
    )


def _search(
    variants: Variants, switches: list[Switch], search: OptionSearch
) -> OptionSearch:
    """Test all switches together, and then smaller and smaller subsets."""
    search = replace(search, tried=len(switches), settings=_settings(switches))
    previous = len(variants.answers)
    start, why = _part_that_passes(variants, switches)
    if start:
        passes = _Passes(variants, previous + MOST - 1)
        subset = Subset(start, SwitchProbabilities(len(start)), passes)
        try:
            needed, minimal = subset.run(), True
        except _LimitReached:
            needed, minimal = subset.kept, False
        # Confirm it with the stock build, which also rules out a coincidence.
        if (
            variants.with_stock_build().with_settings(_conservative_options(needed))
            is Outcome.PASSED
        ):
            search = replace(search, passes_with=_settings(needed), minimal=minimal)
        else:
            why = "the program does not pass with the found options in every run"
    return replace(search, unknown=why, compilations=len(variants.answers) - previous)


def _settings(switches: Iterable[Switch]) -> tuple[Setting, ...]:
    return tuple(Setting(s.option, s.conservative, s.what) for s in switches)


class _LimitReached(Exception):
    """The maximum number of compilations is reached."""


@dataclass(frozen=True)
class _Passes:
    """Tests whether the program passes with some switches, until a limit of answers."""

    variants: Variants
    most: int

    def __call__(self, part: Sequence[Switch]) -> bool:
        if len(self.variants.answers) >= self.most:
            raise _LimitReached
        return (
            self.variants.with_settings(_conservative_options(part)) is Outcome.PASSED
        )


def _conservative_options(part: Iterable[Switch]) -> dict[str, bool | int | str]:
    return {switch.option: switch.conservative for switch in part}


def _part_that_passes(
    variants: Variants, switches: list[Switch]
) -> tuple[list[Switch], str]:
    """Return switches with which the program passes: all of them, or a subset.

    If it fails differently with all of them, some switches cause another failure, and a
    subset without those may pass.

    Returns:
        No switches if the failure stays the same with all of them, and the reason if no
        subset was found.
    """
    parts, tested = deque([switches]), 0
    while parts and tested < _PARTS:
        part, tested = parts.popleft(), tested + 1
        outcome = variants.with_settings(_conservative_options(part))
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
