"""Whether there are minutes for a question: what is asked of a run's budget."""

from __future__ import annotations

import math
from typing import Protocol


class Allowance(Protocol):
    """The minutes of a run, which all its phases share."""

    def has(self, seconds: float) -> bool:
        """Tell whether so many are left besides what is kept for the repro."""
        ...

    def share(self) -> float:
        """Seconds that a part of a run may take which others can do without."""
        ...

    def keep(self, check_s: float) -> None:
        """Keep what a repro takes, where a check of the program took so long."""
        ...


class Unlimited:
    """The budget of a run without ``--max-minutes``."""

    def has(self, seconds: float) -> bool:
        return True

    def share(self) -> float:
        return math.inf

    def keep(self, check_s: float) -> None:
        pass


UNLIMITED = Unlimited()
