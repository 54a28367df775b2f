"""Statistics of the fast build, and whether it is worth further tries."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

from shrinkfx.protocol.answers import Ending, Stopped
from shrinkfx.protocol.choices import Step


@dataclass
class Builds:
    """Counts the builds of all phases of a run.

    Attributes:
        fast: libraries that the fast build made, or found to fail.
        stopped: checks that ended without a library, because their query was answered
            before.
        fallbacks: how often a library fell back to the stock build, by reason.
        in_a_row: fallbacks since the last build without one.
    """

    fast: int = 0
    stopped: int = 0
    fallbacks: Counter[str] = field(default_factory=Counter)
    in_a_row: int = 0

    def add(self, ending: Ending) -> Ending:
        built = ending.built
        if built is None:
            return ending
        if isinstance(ending.answer, Stopped):
            self.stopped += 1
        elif built.fallback:
            self.fallbacks[built.fallback] += 1
        elif built.step is not Step.LOWERING:
            self.fast += 1
        self.in_a_row = self.in_a_row + 1 if built.fallback else 0
        return ending

    def to_json(self) -> dict[str, Any]:
        """Return the counts for summary.json, the most frequent reason first."""
        reasons = dict(self.fallbacks.most_common())
        return {"fast": self.fast, "stopped": self.stopped, "fallbacks": reasons}

    @property
    def pay(self) -> bool:
        """Whether to try the fast build again: each failed try costs time."""
        return self.in_a_row < MAX_FALLBACKS_IN_A_ROW


class LaterBuilds(Builds):
    """The builds of a speculative query: counted only if its answer is used."""

    def __init__(self, all_builds: Builds) -> None:
        super().__init__(in_a_row=all_builds.in_a_row)
        self._all, self._endings = all_builds, list[Ending]()

    def add(self, ending: Ending) -> Ending:
        self._endings.append(replace(ending, log=""))  # the log may be long
        return ending

    def count(self) -> None:
        """Add the builds to the totals, once.

        If the fast build was given up in the meantime, a sequential search would have
        made a stock build here, so nothing is counted.
        """
        while self._endings:
            ending = self._endings.pop(0)
            if self._all.pay:
                self._all.add(ending)


MAX_FALLBACKS_IN_A_ROW = 5
"""The fast build is given up after so many fallbacks in a row."""
