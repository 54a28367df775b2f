"""Report once that checks are slow because the machine is busy."""

from __future__ import annotations

from collections.abc import Callable

from shrinkfx.protocol.answers import Ending
from shrinkfx.system.processes import count_usable_cores

_LEAST_S = 5.0
"""The shortest wait worth a report; it must also be half of the check's time."""


class BusyNotice:
    """Watches how long checks waited for a core, and reports it once.

    Args:
        note: takes the message.
        cores: the number of cores; None for this machine's.
    """

    def __init__(self, note: Callable[[str], None], cores: int | None = None) -> None:
        self._note, self._cores = note, cores or count_usable_cores()
        self._was_noted = False

    def record_ending(self, ending: Ending) -> None:
        """Record how long a check has waited."""
        waited = ending.waited_s >= max(_LEAST_S, ending.seconds / 2)
        if self._was_noted or not waited or ending.runnable <= self._cores:
            return
        self._was_noted = True
        self._note(
            f"the machine is busy: {ending.runnable} runnable processes on "
            f"{self._cores} cores; a check of {ending.seconds:.0f} s waited "
            f"{ending.waited_s:.0f} s for a core; this wait does not count for "
            "--timeout"
        )
