"""The time budget of a run, as the check package sees it."""

from __future__ import annotations

import math
from typing import Protocol


class Allowance(Protocol):
    """The remaining time of a run, which all its phases share."""

    def has(self, seconds: float) -> bool:
        """Tell whether so many seconds are left beyond the reserve for the repro."""
        ...

    def share(self) -> float:
        """Return the seconds that an optional phase may take."""
        ...

    def keep(self, check_s: float) -> None:
        """Reserve the time for a repro, given the seconds of a check of the program."""
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
