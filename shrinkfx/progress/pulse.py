"""A line per minute that names the current work when nothing else is printed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from shrinkfx.events import (
    ActivityStarted,
    Event,
    QueryAnswered,
    RunStarted,
    SearchStarted,
    SizesTried,
)

EVERY_S = 60.0


class Pulse:
    """Prints from a thread of its own when nothing was printed for a minute.

    Args:
        say: prints a line.
        every_s: seconds of silence before a line; None for ``EVERY_S``.
    """

    def __init__(
        self, say: Callable[[str], None], every_s: float | None = None
    ) -> None:
        self._say = say
        self._every_s = EVERY_S if every_s is None else every_s
        self._began = self._last_print = time.monotonic()
        self._doing = self._state = ""
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def take(self, event: Event) -> None:
        """Update the current work from an event, and start the thread if necessary."""
        match event:
            case RunStarted("report"):
                self._doing = "reading the folder of the run"
            case RunStarted(_, model):
                self._doing = f"starting PyTorch for {model}"
            case ActivityStarted(text):
                self._doing = text
            case SearchStarted(operators):
                self._state = f", {operators} operators"
            case QueryAnswered(check, _, operators):
                self._state = f", {operators} operators after check {check}"
            case SizesTried(sizes):
                self._state = f", last at {sizes}"
        if self._thread is None:
            self._ended.clear()
            self._thread = threading.Thread(target=self._beat, daemon=True)
            self._thread.start()

    def restart_timer(self) -> None:
        """Restart the minute, because a line was printed."""
        self._last_print = time.monotonic()

    def close(self) -> None:
        """Print nothing more until the next event."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
        self._thread = None

    def _beat(self) -> None:
        while not self._ended.wait(self._last_print + self._every_s - time.monotonic()):
            now = time.monotonic()
            if now - self._last_print >= self._every_s:
                self._last_print = now
                minutes = (now - self._began) / 60
                self._say(f"[{minutes:.0f} min] {self._doing}{self._state}")
