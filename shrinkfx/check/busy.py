"""Say that a run takes long because the machine has other things to do."""

from __future__ import annotations

from collections.abc import Callable

from shrinkfx.processes import usable_cores
from shrinkfx.protocol.answers import Ending

_LEAST_S = 5.0
"""What a check must have waited, and half of its time, before it is worth a line."""


class Busyness:
    """Hears how checks have ended, and says it once.

    Args:
        note: takes the line.
        cores: None for this machine's.
    """

    def __init__(self, note: Callable[[str], None], cores: int | None = None) -> None:
        self._note, self._cores = note, cores or usable_cores()
        self._was_said = False

    def hear(self, ending: Ending) -> None:
        """Learn what a check has waited for."""
        waited = ending.waited_s >= max(_LEAST_S, ending.seconds / 2)
        if self._was_said or not waited or ending.runnable <= self._cores:
            return
        self._was_said = True
        self._note(
            f"the machine is busy: {ending.runnable} runnable processes on "
            f"{self._cores} cores; a check of {ending.seconds:.0f} s waited "
            f"{ending.waited_s:.0f} s for a core; this wait does not count for "
            "--timeout"
        )
