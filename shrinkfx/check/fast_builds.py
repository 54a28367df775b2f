"""What the fast build has done for a run, and whether it is worth going on."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

from shrinkfx.protocol.answers import Ending, Stopped
from shrinkfx.protocol.choices import Step


@dataclass
class Builds:
    """Count what was built in which way, over all parts of a run.

    Attributes:
        fast: libraries that the fast build has made, or found out to fail.
        stopped: checks that ended before there was one, since what they asked was
            answered.
        fallbacks: why a library was built the stock way after all, and how often.
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
        """State it for the summary, the most frequent reason first."""
        reasons = dict(self.fallbacks.most_common())
        return {"fast": self.fast, "stopped": self.stopped, "fallbacks": reasons}

    @property
    def pay(self) -> bool:
        """Tell whether fast builds are worth a further try: each that fails costs."""
        return self.in_a_row < MAX_FALLBACKS_IN_A_ROW


class LaterBuilds(Builds):
    """Those of a question whose answer may never be wanted: counted if it is."""

    def __init__(self, all_builds: Builds) -> None:
        super().__init__(in_a_row=all_builds.in_a_row)
        self._all, self._endings = all_builds, list[Ending]()

    def add(self, ending: Ending) -> Ending:
        self._endings.append(replace(ending, log=""))  # which may be long
        return ending

    def count(self) -> None:
        """Count them among all, once.

        What began before others were known to be in vain would have been a stock build
        in its turn, of which nothing is counted.
        """
        while self._endings:
            ending = self._endings.pop(0)
            if self._all.pay:
                self._all.add(ending)


MAX_FALLBACKS_IN_A_ROW = 5
"""Fast builds in a row that may fail before there are no more."""
